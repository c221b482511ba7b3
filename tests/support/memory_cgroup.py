"""Memory cgroups of a test's own, v1: what a job is charged for, and a limit that kills it."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.waiting import until

_ROOT = Path("/sys/fs/cgroup/memory")


class Unavailable(Exception):
    """No group can be had; str() is a sentence."""


class MemoryCgroup:
    """One group. What a process in it touches first is charged to it until nobody has it any more."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        """As /proc/PID/cgroup has it, should the hierarchy be mounted whole."""
        return f"/{self.path.relative_to(_ROOT)}"

    def limit(self, count: int) -> None:
        """Kill who goes beyond."""
        (self.path / "memory.limit_in_bytes").write_text(str(count))

    def add(self, pid: int) -> None:
        """A process, and what it starts from now on."""
        (self.path / "cgroup.procs").write_text(str(pid))

    def enter(self) -> None:
        """For `preexec_fn`: nothing of a program is charged elsewhere then."""
        self.add(os.getpid())

    @property
    def charged(self) -> int:
        """Bytes, without page cache of files: anonymous memory, arenas, and what the kernel has for both."""
        stat = dict(line.split() for line in (self.path / "memory.stat").read_text().splitlines())
        return (
            int((self.path / "memory.usage_in_bytes").read_text())
            - int(stat["total_inactive_file"])
            - int(stat["total_active_file"])
        )

    @property
    def kills(self) -> int:
        """How many of its processes the kernel has killed for want of memory."""
        control = dict(line.split() for line in (self.path / "memory.oom_control").read_text().splitlines())
        return int(control["oom_kill"])

    def _end(self) -> None:
        for pid in (self.path / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        until(self._removed, "its processes have been reaped")

    def _removed(self) -> bool:
        with suppress(OSError):
            self.path.rmdir()
        return not self.path.exists()


@contextmanager
def memory_cgroup() -> Iterator[MemoryCgroup]:
    """A new group. Raises Unavailable."""
    if not (_ROOT / "memory.limit_in_bytes").exists():
        raise Unavailable(f"no v1 memory controller at {_ROOT}")
    group = MemoryCgroup(_ROOT / f"profd-test-{secrets.token_hex(4)}")
    try:
        group.path.mkdir()
    except OSError as error:
        raise Unavailable(f"no memory cgroup can be made: {error}") from error
    try:
        yield group
    finally:
        group._end()
