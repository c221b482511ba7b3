"""How much of a stretch of time each of many threads is covered by spans, for all of them at once.

A trace may have as many threads as rows, and a union for each by itself takes some twenty calls of numpy. So all
threads lie one after the other on one line here. Where the window is too long for that, ends are ranks on it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from profd.events.table import Array

_LINE_MAX: Final = 1 << 62


class Covered:
    """Fed with spans in start order, of any threads, none before `first`."""

    def __init__(self, first: int) -> None:
        self._first = first
        self.threads: Array = np.zeros(0, dtype=np.int64)  # ascending: those that had a span
        self.spent: Array = np.zeros(0, dtype=np.int64)  # ns of each
        self._until: Array = np.zeros(0, dtype=np.int64)  # the last end of each

    def add(self, thread: Array, start: Array, end: Array) -> None:
        """Take in further spans; none begins before one of an earlier call."""
        if not len(thread):
            return
        order = np.argsort(thread, kind="stable")
        thread, start, end = thread[order], start[order], end[order]
        at = np.flatnonzero(np.concatenate([[True], thread[1:] != thread[:-1]]))  # the first row of each
        place = self._places_of(thread[at])
        before = self._until[place]
        end[at] = np.maximum(end[at], before)
        until = reached(end, at)
        previous = np.concatenate([before[:1], until[:-1]])
        previous[at] = before
        gain = np.maximum(until - np.maximum(start, previous), 0)
        self.spent[place] += np.add.reduceat(gain, at)
        self._until[place] = until[np.append(at[1:], len(thread)) - 1]

    def _places_of(self, threads: Array) -> Array:
        known = np.union1d(self.threads, threads)
        if len(known) > len(self.threads):
            place = np.searchsorted(known, self.threads)
            spent, until = np.zeros(len(known), dtype=np.int64), np.full(len(known), self._first, dtype=np.int64)
            spent[place], until[place] = self.spent, self._until
            self.threads, self.spent, self._until = known, spent, until
        found: Array = np.searchsorted(self.threads, threads)
        return found


def reached(end: Array, at: Array) -> Array:
    """The latest end so far, in each row, of its thread alone; `at`: the first row of each thread."""
    low, high = int(end.min()), int(end.max())
    if (high - low + 1) * len(at) < _LINE_MAX:
        line = _line(high - low + 1, at, len(end)) - low
        shifted: Array = np.maximum.accumulate(end + line) - line
        return shifted
    values, rank = np.unique(end, return_inverse=True)
    line = _line(len(values), at, len(end))
    found: Array = values[np.maximum.accumulate(rank + line) - line]
    return found


def _line(stride: int, at: Array, rows: int) -> Array:
    """Where the thread of each row begins."""
    return np.repeat(np.arange(len(at)) * stride, np.diff(np.append(at, rows)))
