"""Intervals of time as arrays: what they cover together, and how many are open when. Times in ns."""

from __future__ import annotations

import numpy as np

from profd.events.table import Array


def merged(start: Array, end: Array) -> tuple[Array, Array]:
    """(starts, ends) of the union, ascending and apart from one another; intervals of no length cover nothing."""
    lasting = end > start
    if not lasting.all():
        start, end = start[lasting], end[lasting]
    if not _ascends(start):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    if not len(start):
        return start, end
    reached = np.maximum.accumulate(end)
    first = np.concatenate([[True], start[1:] > reached[:-1]])
    last = np.concatenate([first[1:], [True]])
    return start[first], reached[last]


def _ascends(values: Array) -> bool:
    return bool((values[1:] >= values[:-1]).all())


class Ordered:
    """Intervals in the order of their ends, of which those in a window are found without a look at all of them."""

    def __init__(self, start: Array, end: Array) -> None:
        self._start, self._end = start, end
        self._least = (
            start if _ascends(start) else np.minimum.accumulate(start[::-1])[::-1]
        )  # the earliest from here on

    def within(self, low: int, high: int) -> tuple[Array, Array]:
        """(starts, ends) of those with a part in [low, high), cut to it."""
        first, last = np.searchsorted(self._end, low, "right"), np.searchsorted(self._least, high)
        start, end = self._start[first:last], self._end[first:last]
        some = np.flatnonzero(start < high)
        return np.maximum(start[some], low), np.minimum(end[some], high)


def windows(every: int, *moments: Array) -> list[tuple[int, int]]:
    """Windows one after the other, from the first of these moments to the last.

    Of each array, which ascends, at most so many lie within a window, besides those that are equal.
    """
    known = [array for array in moments if len(array)]
    if not known:
        return []
    edges = np.unique(np.concatenate([*(array[::every] for array in known), *(array[-1:] for array in known)]))
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


class Sweep:
    """How many intervals of each of several sets are open, between one change and the next.

    `times[i]` to `times[i + 1]` is a stretch; it lasts `lasting[i]`, and of set `k` `opened[k][i]` intervals
    are open all through it. The last stretch has no length.
    """

    def __init__(self, *sets: tuple[Array, Array]) -> None:
        times = np.sort(np.concatenate([edge for pair in sets for edge in pair]))
        # np.unique hashes, and takes ten times as long as to sort them.
        self.times = times[np.concatenate([np.ones(min(len(times), 1), dtype=bool), times[1:] != times[:-1]])]
        self.lasting = np.diff(self.times, append=self.times[-1:])
        self.opened = [self._opened(start, end) for start, end in sets]

    @classmethod
    def of_window(cls, window: tuple[int, int], *sets: tuple[Array, Array]) -> Sweep:
        """The same of intervals that were cut to a window: those that fill it are counted, and no more."""
        low, high = window
        edges = np.array([low, high], dtype=np.int64)
        some = [np.flatnonzero((start > low) | (end < high)) for start, end in sets]
        self = cls(*((start[part], end[part]) for part, (start, end) in zip(some, sets, strict=True)), (edges, edges))
        filled = [len(start) - len(part) for part, (start, _) in zip(some, sets, strict=True)]
        self.opened = [opened + more for opened, more in zip(self.opened, filled, strict=False)]
        return self

    def _opened(self, start: Array, end: Array) -> Array:
        count = len(self.times)
        begun = np.bincount(np.searchsorted(self.times, start), minlength=count)
        over = np.bincount(np.searchsorted(self.times, end), minlength=count)
        opened: Array = np.cumsum(begun - over)
        return opened

    def total(self, stretches: Array) -> int:
        """How long the flagged stretches are together."""
        return int(self.lasting[stretches].sum())

    def within(self, stretches: Array, start: Array, end: Array) -> int:
        """How long they are within these intervals, which lie apart and begin and end at changes of this sweep."""
        before = np.concatenate([[0], np.cumsum(np.where(stretches, self.lasting, 0))])
        return int((before[np.searchsorted(self.times, end)] - before[np.searchsorted(self.times, start)]).sum())
