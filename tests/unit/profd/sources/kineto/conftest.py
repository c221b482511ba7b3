"""Where senders and daemon of these tests meet."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """One for everybody's sockets, of a short name."""
    with tempfile.TemporaryDirectory(prefix="kd-", dir="/tmp") as name:
        os.chmod(name, 0o1777)
        yield Path(name)
