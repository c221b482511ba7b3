"""When processes started, which names them for ever: remembered, since asking may wait (targets/guarded.py).

What is remembered of a pid holds as long as a descriptor of the process says the same: the inode that pidfs gives it
(Linux 6.9; never given twice), or where there is none the descriptor itself, kept.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from functools import cache
from typing import Final

from profd.kernel.pidfd import has_ended
from profd.limits import PROC_STARTS_HELD_MAX, PROC_STARTS_MAX
from profd.targets import procfs


@dataclass(frozen=True, slots=True)
class _Start:
    ticks: int
    inode: int  # of pidfs, or 0
    pidfd: int  # held, or -1


class Starts:
    """By pid, the oldest forgotten first. Safe to use from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[int, _Start] = {}

    def known(self, pid: int) -> int:
        """Start time in ticks of a process that lives and was asked about before; 0 for every other. Never waits."""
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return 0
        try:
            with self._lock:
                start = self._known.get(pid)
                if start is None or has_ended(pidfd):
                    return 0
                same = not has_ended(start.pidfd) if start.pidfd >= 0 else os.fstat(pidfd).st_ino == start.inode
                return start.ticks if same else 0
        finally:
            os.close(pidfd)

    def lives(self, pid: int) -> bool:
        """Whether some process has this pid, whichever. Never waits."""
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return False
        try:
            return not has_ended(pidfd)
        finally:
            os.close(pidfd)

    def of(self, pid: int) -> int:
        """The same, asked for where it is not known: 0 if it has ended, or does not answer."""
        return self.known(pid) or self._asked(pid)

    def _asked(self, pid: int) -> int:
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return 0
        stat = procfs.stat_of(pid)
        # The pid was this descriptor's while stat was read: it had not ended behind that.
        if stat is None or stat.state in "ZXx" or has_ended(pidfd):
            os.close(pidfd)
            return 0
        inode = os.fstat(pidfd).st_ino if _pidfs() else 0
        if inode:
            os.close(pidfd)
        self._remember(pid, _Start(stat.start_ticks, inode, -1 if inode else pidfd))
        return stat.start_ticks

    def _remember(self, pid: int, start: _Start) -> None:
        with self._lock:
            self._forget(pid)
            while len(self._known) >= (PROC_STARTS_MAX if start.inode else PROC_STARTS_HELD_MAX):
                self._forget(next(iter(self._known)))
            self._known[pid] = start

    def _forget(self, pid: int) -> None:
        start = self._known.pop(pid, None)
        if start is not None and start.pidfd >= 0:
            os.close(start.pidfd)


starts: Final = Starts()


@cache
def _pidfs() -> bool:
    """Whether descriptors of processes have inodes of their own: then two of one process have the same."""
    opened = [os.pidfd_open(pid) for pid in (os.getpid(), os.getpid(), 1)]
    try:
        mine, again, first = (os.fstat(fd).st_ino for fd in opened)
        return mine == again != first
    finally:
        for fd in opened:
            os.close(fd)
