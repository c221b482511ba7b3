"""Intervals of time as arrays: what they cover together, and how many are open when. Times in ns."""

from __future__ import annotations

import numpy as np

from profd.events.table import Array


def merged(start: Array, end: Array) -> tuple[Array, Array]:
    """(starts, ends) of the union, ascending and apart from one another; intervals of no length cover nothing."""
    lasting = np.flatnonzero(end > start)
    order = lasting[np.argsort(start[lasting], kind="stable")]
    start, end = start[order], end[order]
    if not len(start):
        return start, end
    reached = np.maximum.accumulate(end)
    first = np.concatenate([[True], start[1:] > reached[:-1]])
    last = np.concatenate([first[1:], [True]])
    return start[first], reached[last]


class Sweep:
    """How many intervals of each of several sets are open, between one change and the next.

    `times[i]` to `times[i + 1]` is a stretch; it lasts `lasting[i]`, and of set `k` `opened[k][i]` intervals
    are open all through it. The last stretch has no length and nothing is open in it.
    """

    def __init__(self, *sets: tuple[Array, Array]) -> None:
        self.times = np.unique(np.concatenate([edge for pair in sets for edge in pair]))
        self.lasting = np.diff(self.times, append=self.times[-1:])
        self.opened = [self._opened(start, end) for start, end in sets]

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
