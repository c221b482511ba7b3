"""Memory cgroups of jobs: version 1 or 2, whichever has the controller here."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_numbers = itertools.count(1)


class NoCgroups(Exception):
    """None can be made here; str() says why."""


@contextmanager
def limited(memory_bytes: int) -> Iterator[Path]:
    """A cgroup with this limit on memory, gone afterwards: its `cgroup.procs` takes the job. Raises NoCgroups."""
    parent, limit = _controller()
    folder = parent / f"kindness-{os.getpid()}-{next(_numbers)}"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(memory_bytes))
    except OSError as error:
        raise NoCgroups(f"{folder} cannot be made: {error.strerror}") from None
    try:
        yield folder
    finally:
        for _ in range(100):  # the kernel lets go of it a moment after its last process
            with contextlib.suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.02)


def _controller() -> tuple[Path, str]:
    """The folder below which cgroups with a memory limit can be made, and the name of the limit."""
    first = _ROOT / "memory"
    if (first / "memory.limit_in_bytes").exists():
        return first, "memory.limit_in_bytes"
    if "memory" in _read(_ROOT / "cgroup.subtree_control").split():
        return _ROOT, "memory.max"
    raise NoCgroups("no memory controller for cgroups is mounted and enabled here")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def joined(folder: Path, command: list[str | Path]) -> list[str | Path]:
    """The command, run from within the cgroup: what comes before it is not charged to it."""
    script = f'echo $$ > {folder}/cgroup.procs && exec "$@"'
    return ["/bin/sh", "-c", script, "sh", *command]
