"""A daemon's end of the agent protocol, and programs that attach to it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sdk_jobs import Agents


@pytest.fixture
def agents() -> Iterator[Agents]:
    # Not tmp_path: the path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="profd") as folder:
        started = Agents(Path(folder))
        yield started
        started.close()
