"""The source `sdk` for the tests of a folder."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.sdk_rig import Rig


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        found = Rig(Path(name))
        await found.source.open()
        try:
            yield found
        finally:
            await found.close()
