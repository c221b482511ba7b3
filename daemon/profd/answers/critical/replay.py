"""How long the steps had lasted, had something taken no time: the same launches, queues and waits, played again.

What the host did, when each launch was made, which work each piece of device work and each wait waited for, and how
long launches and returns of waits take stay as they were. With nothing changed the window comes out as it was.
Recurrences of this sort are those of HTA's critical path and of ByteDance's StragglerAnalysis. Times in ns.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from profd.answers.critical.dependencies import Queue, Waits
from profd.answers.spans import Spans
from profd.answers.work import NO_PLACE, Work
from profd.events import NO_END
from profd.events.table import Array

NOTHING: Final = Spans(*(np.zeros(0, dtype=np.int64),) * 2)
_NEVER: Final = int(np.iinfo(np.int64).min) // 4


class Replay:
    """The window from `start` on: of the host up to `host_end`, of the work that is `closing` until it has ended."""

    def __init__(self, work: Work, queue: Queue, waits: Waits, start: int, host_end: int, closing: Array) -> None:
        self._start, self._host_end, self._closing = start, host_end, closing
        inside = np.flatnonzero((waits.start >= start) & (waits.start < host_end))
        self._waits = (waits.start[inside], waits.end[inside])
        self._waited_for = [*zip(waits.work[inside].tolist(), _returns(work, waits)[inside].tolist(), strict=True)]
        self._also = [waits.also[place] for place in inside.tolist()]
        self._ends, self._lasts = work.end, work.end - work.start
        self._starts = work.start.tolist()
        self._queue = [array.tolist() for array in (queue.before, queue.after_before, queue.other, queue.after_other)]
        launched = np.where(queue.launched == NO_END, _NEVER, queue.launched)
        self._by_launch = np.argsort(launched, kind="stable")
        self._launches = launched[self._by_launch]
        self._delay = queue.delay
        self._ready = np.where(launched == _NEVER, _NEVER, launched + queue.delay)

    def lasts(self, *, gone: Spans = NOTHING, free: Array | None = None, never_waits: bool = False) -> int:
        """How long the window then is.

        `gone`: stretches of the host's time that take none. `free`: a flag for each piece of device work that takes
        none. `never_waits`: the host goes on where it waited.
        """
        lasts = self._lasts if free is None else np.where(free, 0, self._lasts)
        # What began before the window stays where it was.
        fixed = int(np.searchsorted(self._starts, self._start))
        device = _Device(self._queue, self._starts, self._ends.tolist(), lasts.tolist(), self._ready.copy(), fixed)
        there = self._host(device, gone, never_waits)
        device.play(len(self._starts))
        ends = np.array(device.ends, dtype=np.int64)[self._closing]
        return max(there, int(ends.max()) if len(ends) else there) - self._start

    def _host(self, device: _Device, gone: Spans, never_waits: bool) -> int:
        """When the host is at its end."""
        starts, ends = self._waits
        launches = self._host_time(self._launches, gone)
        begin, until = (self._host_time(edge, gone).tolist() for edge in (starts, ends))
        first, last = (np.searchsorted(self._launches, edge).tolist() for edge in (starts, ends))
        low = int(np.searchsorted(self._launches, self._start))
        here, there = 0, self._start  # host time of the last wait's end, and the moment in which it is played
        for place, (work, returns) in enumerate(self._waited_for):
            self._launch(device, low, first[place], launches, there - here)
            there += begin[place] - here
            # What another thread launches while the host waits moves with the begin of the wait.
            self._launch(device, first[place], last[place], self._launches, there - int(starts[place]))
            if not never_waits:
                needed = [which for which in (*self._also[place], work) if which != NO_PLACE]
                ended = max((device.end(which) for which in needed), default=there)
                # One that did not stand still lasted as long as it does where there is nothing to wait for.
                there = max(
                    there + (int(ends[place] - starts[place]) if work == NO_PLACE else returns), ended + returns
                )
            here, low = until[place], last[place]
        self._launch(device, low, len(launches), launches, there - here)
        return there + int(self._host_time(np.array([self._host_end]), gone)[0]) - here

    def _host_time(self, moments: Array, gone: Spans) -> Array:
        """How much of the window the host has had until each moment, without what is gone."""
        spent: Array = moments - self._start - gone.within(np.full(len(moments), self._start), moments)
        return spent

    def _launch(self, device: _Device, low: int, high: int, moments: Array, later: int) -> None:
        places = self._by_launch[low:high]
        device.ready[places] = moments[low:high] + later + self._delay[places]


class _Device:
    """The work of all streams, in start order."""

    def __init__(
        self, queue: list[list[int]], starts: list[int], ends: list[int], lasts: list[int], ready: Array, fixed: int
    ) -> None:
        self._queue, self._starts, self._lasts = queue, starts, lasts
        self.ends, self.ready = ends, ready
        self._next = fixed

    def end(self, work: int) -> int:
        """When this work ends."""
        self.play(work + 1)
        return self.ends[work]

    def play(self, until: int) -> None:
        """Play the work before this place: each follows what it waited for, which began before it."""
        befores, after_before, others, after_other = self._queue
        ends, starts, lasts = self.ends, self._starts, self._lasts
        for place, ready in enumerate(self.ready[self._next : until].tolist(), start=self._next):
            before, other, begin = befores[place], others[place], ready
            # Compared by hand: `max` takes longer than all the rest, a million times.
            if before >= 0 and (after := ends[before] + after_before[place]) > begin:
                begin = after
            if other >= 0 and (after := ends[other] + after_other[place]) > begin:
                begin = after
            ends[place] = (begin if begin > _NEVER else starts[place]) + lasts[place]
        self._next = max(self._next, until)


def _returns(work: Work, waits: Waits) -> Array:
    """How long each wait takes after what it waited for has ended."""
    stood = waits.work != NO_PLACE
    if not stood.any():
        return np.zeros(len(stood), dtype=np.int64)
    returns = np.where(stood, waits.end - work.end[waits.work], 0)
    found: Array = np.where(stood, returns, np.minimum(int(np.median(returns[stood])), waits.end - waits.start))
    return found
