from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.recording import Recording, recording


@pytest.fixture
def session() -> Iterator[Recording]:
    """Whatever the test does is recorded."""
    with recording() as made:
        yield made
