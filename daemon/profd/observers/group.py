"""What the processes of a build are at. They are one process group, which none of them leaves (`tasks`).

Their user may stop them, or keep them from every processor (its priority, its cores): such a build holds a place that
others wait for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from profd.limits import OBSERVER_BUILD_CPU_SECONDS, OBSERVER_STALLED_CPU_SECONDS, OBSERVER_STALLED_SECONDS
from profd.targets import procfs


class Group:
    """The processes of one build, as /proc shows them."""

    def __init__(
        self,
        number: int,
        clock: Callable[[], float] = time.monotonic,
        proc: Path = Path("/proc"),
        group_of: Callable[[int], int] = os.getpgid,
    ) -> None:
        self._number = number
        self._clock = clock
        self._proc = proc
        self._group_of = group_of
        self._spent_ns: dict[int, int] = {}  # by pid, also of those that have ended
        self._moved = (clock(), 0.0)  # when it had got on, and its CPU time by then

    def why_to_end(self) -> str:
        """A sentence when it is stopped, has used up its CPU time, or gets none. Reads /proc: for a thread."""
        stopped = self._look()
        if stopped:
            return f"one of its processes was stopped (pid {stopped})"
        now, spent = self._clock(), sum(self._spent_ns.values()) / 1e9
        if spent > OBSERVER_BUILD_CPU_SECONDS:
            return f"it took more than {OBSERVER_BUILD_CPU_SECONDS:.0f} s of CPU time"
        since, before = self._moved
        if spent - before >= OBSERVER_STALLED_CPU_SECONDS:
            self._moved = now, spent
        elif now - since > OBSERVER_STALLED_SECONDS:
            return f"it got {spent - before:.2f} s of CPU time in {now - since:.0f} s"
        return ""

    def _look(self) -> int:
        """Remember what each has spent; the pid of one that is stopped, 0 if none is."""
        stopped = 0
        for name in os.listdir(self._proc):
            if not name.isdecimal() or not self._has(int(name)):
                continue
            status = procfs.read_record(self._proc / name / "status", procfs.STATUS_BYTES) or b""
            spent = procfs.read_record(self._proc / name / "schedstat", 256)
            self._spent_ns[int(name)] = int(spent.split()[0]) if spent else self._spent_ns.get(int(name), 0)
            if _word(status, b"State") == b"T":
                stopped = int(name)
        return stopped

    def _has(self, pid: int) -> bool:
        try:
            return self._group_of(pid) == self._number
        except ProcessLookupError:
            return False


def _word(status: bytes, name: bytes) -> bytes:
    """The first of a line of /proc/PID/status; empty where there is none."""
    # The kernel escapes newlines in the command name, which is the process's own choice.
    words = status.partition(b"\n" + name + b":")[2].partition(b"\n")[0].split()
    return words[0] if words else b""
