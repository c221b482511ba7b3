"""How long the threads of a process ran, and waited for a CPU: two looks at what the kernel counts of each.

Read from task/TID/schedstat and comm, which never wait (docs/decisions/0010-processes-that-do-not-answer.md) and cost
the process nothing: 8 µs a thread of the daemon's time. `look` is called in a thread; a `Watch` looks in the
one of all looks that are repeated (targets/looks.py).
"""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import Future
from dataclasses import dataclass

from profd.fairness.thread_by_turns import Repetition
from profd.limits import RUN_TIMES_THREADS_MAX
from profd.model.run_times import RUNS_KEPT, THREADS_KEPT, RunTimes, ThreadTimes
from profd.targets import procfs
from profd.targets.looks import looks
from profd.targets.process import Process
from profd.targets.waits import Waits


@dataclass(frozen=True, slots=True)
class Counted:
    """The kernel's counts of one thread when it was looked at."""

    at_ns: int  # CLOCK_MONOTONIC
    ran_ns: int
    queued_ns: int


@dataclass(frozen=True, slots=True)
class ThreadsLook:
    """All threads of a process, by their ids on this host, and how many there were."""

    at_ns: int
    threads: dict[int, Counted]
    there: int

    def of(self, task: int) -> Counted | None:
        """Its counts; none of a thread that was not there yet. None: not looked at."""
        whole = self.there <= RUN_TIMES_THREADS_MAX
        return self.threads.get(task) or (Counted(self.at_ns, 0, 0) if whole else None)


def look(process: Process) -> ThreadsLook:
    """Now. Empty where the process has ended, or this host does not count."""
    now, tasks = time.monotonic_ns(), procfs.tasks_of(process.id.pid)
    found: dict[int, Counted] = {}
    for task in tasks[:RUN_TIMES_THREADS_MAX]:
        if (counted := procfs.schedstat_of(process.id.pid, task)) is not None:
            found[task] = Counted(time.monotonic_ns(), *counted)
    return ThreadsLook(now, found, len(tasks))


def between(process: Process, first: ThreadsLook, last: ThreadsLook, waits: Waits | None = None) -> RunTimes:
    """The run times from one look to the next; names are asked for now. Nothing where the process is another user's."""
    waits = waits or Waits(process)  # none: no look was taken
    both = [(task, before, now) for task, now in last.threads.items() if (before := first.of(task)) is not None]
    if not first.threads or not both:
        return RunTimes()
    busy = [each for each in both if each[2].ran_ns > each[1].ran_ns or each[2].queued_ns > each[1].queued_ns]
    busy.sort(key=lambda each: each[1].ran_ns - each[2].ran_ns)
    others, ran = busy[THREADS_KEPT:], {task for task, _, _ in busy}
    idle = [task for task, _, _ in both if task not in ran]
    found = RunTimes(
        lasted_ns=last.at_ns - first.at_ns,
        cores=os.cpu_count() or 1,
        threads=[_thread(process, *each, waits) for each in busy[:THREADS_KEPT]],
        others=len(others),
        others_ran_ns=sum(now.ran_ns - before.ran_ns for _, before, now in others),
        looked_ns=waits.moments,
        idle=len(idle),
        idle_ids=_runs(_inner(process, idle))[:RUNS_KEPT],
        unseen=max(first.there, last.there) - len(both),
    )
    return found if procfs.may_be_of(process.id.pid, process.uid) else RunTimes()


class Watch:
    """The two looks at a process, in a thread: at the begin of its window and at the end; in between, at what it waits
    for. On an event loop.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._looks: list[Future[ThreadsLook]] = []
        self._waits = Waits(process)
        self._waiting: Repetition | None = None

    def begin(self) -> None:
        """Its window is open. Only the first call counts."""
        if not self._looks:
            self._looks.append(looks.submit(self._process.uid, look, self._process))
            self._waits.begin()
            self._waiting = looks.repeat(self._process.uid, self._waits.look)

    def end(self) -> None:
        """It is over."""
        if len(self._looks) == 1:
            self._waits.end()
            if self._waiting is not None:
                self._waiting.end()
            self._looks.append(looks.submit(self._process.uid, look, self._process))

    async def times(self) -> RunTimes:
        """The run times in between; none of a window that never was open."""
        self.end()
        if not self._looks:
            return RunTimes()
        first, last = await asyncio.gather(*map(asyncio.wrap_future, self._looks))
        return await asyncio.wrap_future(
            looks.submit(self._process.uid, between, self._process, first, last, self._waits)
        )


def _inner(process: Process, tasks: list[int]) -> list[int]:
    """Their ids as the process knows them."""
    if len(process.namespace_pids) < 2:
        return tasks
    return procfs.inner_ids(process.id.pid, tasks)


def _runs(ids: list[int]) -> list[tuple[int, int]]:
    """First and last of each run of numbers without a gap, ascending."""
    found: list[tuple[int, int]] = []
    for each in sorted(ids):
        if found and each == found[-1][1] + 1:
            found[-1] = (found[-1][0], each)
        else:
            found.append((each, each))
    return found


def _thread(process: Process, task: int, before: Counted, now: Counted, waits: Waits) -> ThreadTimes:
    return ThreadTimes(
        id=_inner(process, [task])[0],
        name=procfs.name_of(process.id.pid, task),
        lasted_ns=now.at_ns - before.at_ns,
        ran_ns=now.ran_ns - before.ran_ns,
        queued_ns=now.queued_ns - before.queued_ns,
        looks=waits.looked[task],
        in_gil=waits.in_gil[task] if waits.knows_gil else None,
        in_lock=waits.in_lock[task],
        states=waits.states(task),
    )
