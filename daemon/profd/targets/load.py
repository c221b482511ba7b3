"""What a process takes of the host before, while and after it is recorded, by what the kernel counts of its threads.

Four looks in all, from outside, in the thread of all looks that are repeated (targets/looks.py): schedstat and status
of each thread, which cost the process nothing. Nothing is held open.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

from profd.limits import LOAD_THREADS_MAX
from profd.model.load import Load, Stretch
from profd.targets import procfs
from profd.targets.looks import looks
from profd.targets.process import Process

LEAST_NS: Final = 100_000_000
"""A shorter stretch says little: of a thread that runs the kernel counts in ticks of 1 to 10 ms."""
AFTER_SECONDS: Final = 5.0

_Thread = tuple[int, int, int, int]  # ran, queued, waits, preemptions
_NEW: Final[_Thread] = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ThreadCounts:
    """The kernel's counts of all threads of a process at one moment of CLOCK_MONOTONIC."""

    at_ns: int
    threads: dict[int, _Thread]


def count(process: Process) -> ThreadCounts | None:
    """Now. None where it has ended, does not answer, is another user's by now, has too many threads, or this host does
    not count.
    """
    pid, at_ns = process.id.pid, time.monotonic_ns()
    status, tasks = procfs.status_of(pid), procfs.tasks_of(pid)
    if status is None or status.uid != process.uid or len(tasks) > LOAD_THREADS_MAX:
        return None
    switches = procfs.switches_of(pid, tasks)
    if switches is None:
        return None
    found: dict[int, _Thread] = {}
    for task, counts in switches.items():
        if (times := procfs.schedstat_of(pid, task)) is not None:
            found[task] = (*times, *counts)
    return ThreadCounts(at_ns, found) if found else None


def between(first: ThreadCounts | None, last: ThreadCounts | None) -> Stretch | None:
    """What came from one to the other. Counts that go down are another thread's: the pid is used again."""
    if first is None or last is None or last.at_ns - first.at_ns < LEAST_NS:
        return None
    sums = [0, 0, 0, 0]
    for task, now in last.threads.items():
        for place, (before, after) in enumerate(zip(first.threads.get(task, _NEW), now, strict=True)):
            if after < before:
                return None
            sums[place] += after - before
    return Stretch(last.at_ns - first.at_ns, *sums)


class LoadWatch:
    """The looks at one process, from when it is to be recorded; a second call of any changes nothing."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._looks: list[Future[ThreadCounts | None]] = [self._look()]
        self.ended_at: float | None = None  # of the monotonic clock: the window's end

    def begin(self) -> None:
        """Its window is open."""
        if len(self._looks) == 1:
            self._looks.append(self._look())

    def end(self) -> None:
        """It is over."""
        if len(self._looks) == 2:
            self._looks.append(self._look())
            self.ended_at = time.monotonic()

    async def load(self) -> Load:
        """All but what comes after; nothing of a window that never was open."""
        self.end()
        if len(self._looks) < 3:
            return Load()
        ordered, began, ended = await asyncio.gather(*map(asyncio.wrap_future, self._looks))
        return Load(between(ordered, began), between(began, ended))

    async def complete(self, load: Load) -> Load:
        """With what came after, until now."""
        ended = await asyncio.wrap_future(self._looks[2])
        return replace(load, after=between(ended, await asyncio.wrap_future(self._look())))

    def _look(self) -> Future[ThreadCounts | None]:
        return looks.submit(self._process.uid, count, self._process)
