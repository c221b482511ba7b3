"""A filesystem of a few MiB, which only root can have: a tmpfs of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount one of this size in an existing folder; skips the test where that cannot be done."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def free_bytes(folder: Path) -> int:
    """What may still be written there."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
