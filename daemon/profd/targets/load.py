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
_ORDERED_SECONDS: Final = 0.02  # until the first look, which would keep the order waiting for the interpreter

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
    """The looks at one process, from when it is to be recorded; a second call of any changes nothing. On an event loop.

    A window that opens at once has nothing before it to look at.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._ordered: Future[ThreadCounts | None] | None = None
        self._began: Future[ThreadCounts | None] | None = None
        self._ended: Future[ThreadCounts | None] | None = None
        self._ordering = asyncio.get_running_loop().call_later(_ORDERED_SECONDS, self._order)
        self.ended_at: float | None = None  # of the monotonic clock: the window's end

    def begin(self) -> None:
        """Its window is open."""
        if self._began is None:
            self._ordering.cancel()
            self._began = self._look()

    def end(self) -> None:
        """It is over; nothing of one that was not open."""
        if self._began is not None and self._ended is None:
            self._ended = self._look()
            self.ended_at = time.monotonic()

    async def load(self) -> Load:
        """All but what comes after; nothing of a window that never was open."""
        self.end()
        ordered, began, ended = [await _counts(look) for look in (self._ordered, self._began, self._ended)]
        return Load(between(ordered, began), between(began, ended))

    async def complete(self, load: Load) -> Load:
        """With what came after, until now."""
        return replace(load, after=between(await _counts(self._ended), await _counts(self._look())))

    def _order(self) -> None:
        self._ordered = self._look()

    def _look(self) -> Future[ThreadCounts | None]:
        return looks.submit(self._process.uid, count, self._process)


async def _counts(look: Future[ThreadCounts | None] | None) -> ThreadCounts | None:
    return None if look is None else await asyncio.wrap_future(look)
