"""The walk back from the end of the measured steps along what was waited for. Times in ns."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from profd.answers.critical.dependencies import Queue, Reason, Waits
from profd.answers.spans import Spans
from profd.answers.work import NO_PLACE, Work
from profd.events.table import Array


class Part(IntEnum):
    """What a stretch of the path was spent with."""

    HOST = 0
    DEVICE = 1
    LAUNCH = 2  # from the begin of a launch to that of its work
    RETURN = 3  # from the end of device work to that of the call which waited for it
    GAP = 4  # between two pieces of device work


_HOST, _DEVICE, _LAUNCH, _RETURN, _GAP = (int(part) for part in Part)


@dataclass(frozen=True, slots=True)
class Path:
    """Stretches that cover the window from `start` to `end`, the last one first."""

    start: int
    end: int
    part: Array
    begin: Array  # of each stretch
    until: Array
    work: Array  # of those on a device; else NO_PLACE

    def time(self, part: Part) -> int:
        """How much of the window it is."""
        return int((self.until - self.begin)[self.part == part].sum())

    @property
    def on_host(self) -> Spans:
        """When the host was on the path."""
        mine = self.part == Part.HOST
        return Spans.union(self.begin[mine], self.until[mine])


def walk(work: Work, queue: Queue, waits: Waits, start: int, end: int, last: int) -> Path:
    """From `end` back to `start`. `last`: the work that ends there; NO_PLACE: the host does."""
    return _Walk(work, queue, waits, start, end).back(last)


class _Walk:
    """Lists and plain numbers: the walk is a loop of some 100,000 rounds."""

    def __init__(self, work: Work, queue: Queue, waits: Waits, start: int, end: int) -> None:
        self._start, self._end, self._now = start, end, end
        self._waits = (waits.end.tolist(), waits.work.tolist())
        self._work = (work.start.tolist(), work.end.tolist())
        self._launched = np.where(queue.reason == Reason.LAUNCH, queue.launched, NO_PLACE).tolist()
        before = np.where(queue.reason == Reason.STREAM, queue.before, NO_PLACE)
        self._on = np.where(queue.reason == Reason.OTHER, queue.other, before).tolist()
        self._found: list[tuple[int, int, int, int]] = []

    def back(self, last: int) -> Path:
        at = last
        while self._now > self._start:
            at = self._host() if at == NO_PLACE else self._device(at)
        columns = zip(*self._found, strict=True) if self._found else [()] * 4
        part, begin, until, work = (np.array(column, dtype=np.int64) for column in columns)
        return Path(self._start, self._end, part, begin, until, work)

    def _cover(self, part: int, since: int, work: int = NO_PLACE) -> None:
        since = max(since, self._start)
        if since < self._now:
            self._found.append((part, since, self._now, work))
            self._now = since

    def _host(self) -> int:
        """Back to the wait before; the work that it waited for."""
        ends, works = self._waits
        place = bisect_right(ends, self._now) - 1
        if place < 0:
            self._cover(_HOST, self._start)
            return NO_PLACE
        self._cover(_HOST, ends[place])
        work: int = works[place]
        self._cover(_RETURN, self._work[1][work])
        return work

    def _device(self, place: int) -> int:
        """Back to what this work waited for; NO_PLACE: that was the host."""
        starts, ends = self._work
        self._cover(_DEVICE, starts[place], place)
        if self._launched[place] != NO_PLACE:
            self._cover(_LAUNCH, self._launched[place])
            return NO_PLACE
        before: int = self._on[place]
        if before != NO_PLACE:
            self._cover(_GAP, ends[before])
        return before
