"""What the threads of a process wait for, in looks repeated through its window: the GIL, another lock, or else.

Read from task/TID/syscall, which the kernel writes without stopping a thread, by the child of all such looks
(targets/guarded.py): 60 µs for 16 threads. docs/decisions/0037-waits-by-looks.md.
"""

from __future__ import annotations

import math
import os
import time
import weakref
from collections import Counter
from typing import Final

from profd.kernel import futex
from profd.limits import RUN_TIMES_THREADS_MAX
from profd.model.run_times import IN_GIL, IN_LOCK, MOMENTS_KEPT, OFF, RUNS, UNSEEN
from profd.targets import procfs
from profd.targets.process import Process

THREADS_MAX: Final = 16  # that are looked at: the busiest, chosen anew now and then
PERIOD_SECONDS: Final = 0.1
SHARE: Final = 0.01  # of one core, that looks at one process may take
HOST_SHARE: Final = 0.005  # of all cores, that looks at all processes may take
FIRST_LOOKS: Final = 20  # fewer than ten of a thread say nothing
LATER_HOST_SHARE: Final = 0.002  # after these
_CHOSEN_FOR: Final = 10  # looks
_IN_VAIN_MAX: Final = 3  # in a row: others wait meanwhile, and it may not be ours to look at


def _share(host_share: float = HOST_SHARE) -> float:
    """Of one core, for each of the processes that are looked at now."""
    return min(SHARE, host_share * (os.cpu_count() or 1) / max(len(_open), 1))


class Waits:
    """The counts of one process, by its threads' ids on this host. `look` is called in one thread at a time."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._interpreter: list[range] = []
        self._ran: dict[int, int] = {}
        self._tasks: list[int] = []
        self._left = 0
        self._layout: tuple[int, ...] = ()  # of the program that its user may have looked at
        self._in_vain = 0
        self._moments: list[tuple[int, dict[int, str]]] = []  # Unix ns, and the states of threads
        self._looks = 0
        self._every = 1  # of these looks a moment is kept
        self.looked: Counter[int] = Counter()
        self.in_gil: Counter[int] = Counter()
        self.in_lock: Counter[int] = Counter()

    @property
    def knows_gil(self) -> bool:
        """Where the interpreter's data is."""
        return bool(self._interpreter)

    @property
    def moments(self) -> list[int]:
        """When it was looked at, in Unix ns, ascending."""
        return [at for at, _ in self._moments]

    def states(self, task: int) -> str:
        """A letter for each of these."""
        return "".join(states.get(task, UNSEEN) for _, states in self._moments)

    def begin(self) -> None:
        """It is looked at from now on, and counts among those that share the host."""
        _open.add(self)

    def end(self) -> None:
        """No more."""
        _open.discard(self)

    def look(self) -> float:
        """Look once; after how many seconds to look again: where nothing can be had, not in this window."""
        began, pid = time.thread_time(), self._process.id.pid
        if not self._left:
            self._choose(pid)
        self._left -= 1
        at_ns, calls, layout = procfs.calls_of(pid, self._tasks)
        if not layout or layout != self._layout:  # another program, root's for one: it may be gone at the window's end
            calls = [None] * len(calls)
        states: dict[int, str] = {}
        self._in_vain = 0 if any(calls) else self._in_vain + 1
        if self._in_vain >= _IN_VAIN_MAX:
            return math.inf
        for task, call in zip(self._tasks, calls, strict=True):
            if call is None:  # it has ended, changed its state meanwhile, or is not ours to look at
                continue
            self.looked[task] += 1
            states[task] = self._state(call)
            if (counts := {IN_GIL: self.in_gil, IN_LOCK: self.in_lock}.get(states[task])) is not None:
                counts[task] += 1
        self._keep(at_ns, states)
        # The child that asks takes twice as much.
        return max(PERIOD_SECONDS, 3 * (time.thread_time() - began) / _share(self._host_share))

    @property
    def _host_share(self) -> float:
        return HOST_SHARE if self._looks < FIRST_LOOKS else LATER_HOST_SHARE

    def _state(self, call: bytes) -> str:
        if call.startswith(b"running"):
            return RUNS
        if (word := futex.word_of(call)) is None:
            return OFF
        return IN_GIL if any(word in data for data in self._interpreter) else IN_LOCK

    def _keep(self, at_ns: int, states: dict[int, str]) -> None:
        self._looks += 1
        # The clock of a host may be set back: such a look cannot be told apart from earlier ones.
        if not states or self._looks % self._every or (self._moments and at_ns <= self._moments[-1][0]):
            return
        if len(self._moments) >= MOMENTS_KEPT:
            self._moments, self._every = self._moments[1::2], 2 * self._every
        self._moments.append((at_ns, states))

    def _choose(self, pid: int) -> None:
        """The threads that ran or were ready most since they were last chosen, or ever."""
        self._layout = self._layout or procfs.layout_of(pid, self._process.uid)
        self._interpreter = self._interpreter or futex.interpreter_data(procfs.maps_of(pid))
        spent: dict[int, int] = {}
        for task in procfs.tasks_of(pid)[:RUN_TIMES_THREADS_MAX]:
            if (times := procfs.schedstat_of(pid, task)) is not None:
                spent[task] = sum(times)
        most = sorted(spent, key=lambda task: self._ran.get(task, 0) - spent[task])
        self._ran, self._tasks, self._left = spent, most[:THREADS_MAX], _CHOSEN_FOR


_open: Final = weakref.WeakSet[Waits]()
