"""A capture manager over fake sources, for the tests of a folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from profd.capture.manager import CaptureManager

from tests.support.captures import (
    FakeTable,
    Rig,
    process,
)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, FakeTable([process(100), process(101), process(102, uid=51001, user="bob")]))


@pytest.fixture
async def manager(rig: Rig) -> AsyncIterator[CaptureManager]:
    async with rig.running() as running:
        yield running
