"""Sets of moments: stretches of time that lie apart from one another. Times in ns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.events.table import Array
from profd.query.intervals import merged

_BEFORE: Final = np.int64(np.iinfo(np.int64).min)
_AFTER: Final = np.int64(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class Spans:
    """Stretches in order, none of which touches another."""

    start: Array  # int64
    end: Array

    @classmethod
    def union(cls, start: Array, end: Array) -> Spans:
        """What these intervals cover, in any order; those of no length cover nothing."""
        return cls(*merged(start, end))

    def __len__(self) -> int:
        return len(self.start)

    @property
    def total(self) -> int:
        """How long they are together."""
        return int((self.end - self.start).sum())

    def within(self, start: Array, end: Array) -> Array:
        """How much of each of these intervals they cover."""
        before = np.concatenate([[0], np.cumsum(self.end - self.start)])

        def covered(moment: Array) -> Array:
            begun = np.searchsorted(self.start, moment, side="right")
            beyond = np.maximum(self.end[np.maximum(begun - 1, 0)] - moment, 0) if len(self.start) else 0
            ns: Array = before[begun] - np.where(begun > 0, beyond, 0)
            return ns

        found: Array = covered(end) - covered(start)
        return found

    def holds(self, moment: Array) -> Array:
        """Whether each moment lies in one of them; an end does not."""
        begun = np.searchsorted(self.start, moment, side="right")
        inside: Array = (begun > 0) & (moment < self.end[np.maximum(begun - 1, 0)]) if len(self.start) else begun > 0
        return inside

    def common(self, other: Spans) -> Spans:
        """What lies in both."""
        first = np.searchsorted(other.end, self.start, side="right")
        meeting = np.maximum(np.searchsorted(other.start, self.end, side="left") - first, 0)  # others that meet each
        mine = np.repeat(np.arange(len(self)), meeting)
        theirs = np.arange(len(mine)) + np.repeat(first - (np.cumsum(meeting) - meeting), meeting)
        start = np.maximum(self.start[mine], other.start[theirs])
        return Spans(start, np.minimum(self.end[mine], other.end[theirs]))

    def without(self, other: Spans) -> Spans:
        """What lies in these and not in the others."""
        return self.common(Spans(np.append(_BEFORE, other.end), np.append(other.start, _AFTER)))
