"""Where frames that were open when their tracer began stand among ranges that were open then, too.

Ranges are recorded from the first moment of a window, Python calls only once the
tracer has the GIL; frames that are open then begin at that moment, for want of a
better one. But what ends after a range that began before must have been around
it: such a frame begins just before the range, or it would partly overlap it and
everything that it calls later would have lost its caller.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profd.events import NO_END
from profd.events.distinct import distinct
from profd.limits import OPEN_EVENTS_MAX

Array = npt.NDArray[Any]

_FOREVER: Final = np.iinfo(np.int64).max


class OpenFrames:
    """Feed it batch by batch, in order of time.

    Of the rows that reach beyond a batch it remembers `most`, those that last longest; `forgotten` counts the
    others: a frame that was around one of them may stay where it is.
    """

    def __init__(self, most: int = OPEN_EVENTS_MAX) -> None:
        self.forgotten = 0
        self._most = most
        nothing = np.empty(0, dtype=np.int64)
        self._before: tuple[Array, Array, Array] = (
            nothing.astype(np.int32),
            nothing,
            nothing,
        )  # thread, start, end of rows that reach beyond

    def place(self, thread: Array, start: Array, end: Array, nests: Array, frames: Array, floors: Array) -> None:
        """Move `start` of the rows `frames` (int64), which were open at the start, each at most to its floor.

        `nests`: rows that have children.
        """
        reach = nests & (end > start[-1])
        if len(frames):
            first, last = start[frames].min(), start[frames].max()
            around = np.flatnonzero(nests & (start < last) & (end > first) & np.isin(thread, thread[frames]))
            rows: tuple[Array, Array, Array] = (thread[around], start[around], end[around])
            known = [np.concatenate((old, new)) for old, new in zip(self._before, rows, strict=True)]
            for number in set(thread[frames].tolist()):
                mine = frames[thread[frames] == number]
                of_thread = known[0] == number
                moved = _starts(start[mine], end[mine], known[1][of_thread], known[2][of_thread])
                start[mine] = np.maximum(moved, floors[thread[frames] == number])
        still = self._before[2] > start[-1]
        open_now = (
            np.concatenate((self._before[0][still], thread[reach])),
            np.concatenate((self._before[1][still], start[reach])),
            np.concatenate((self._before[2][still], end[reach])),
        )
        if (beyond := len(open_now[0]) - self._most) > 0:
            self.forgotten += beyond
            kept = np.sort(np.argpartition(open_now[2], beyond)[beyond:])
            open_now = (open_now[0][kept], open_now[1][kept], open_now[2][kept])
        self._before = open_now


def _starts(start: Array, end: Array, range_start: Array, range_end: Array) -> Array:
    """Of frames of one thread, given the ranges on it."""
    found = start.copy()
    order = np.argsort(range_end, kind="stable")
    ends = range_end[order]
    # Ranges that end within a frame. Were they open when it began, the earliest of them begins before it.
    low = np.searchsorted(ends, start, "right")
    high = np.searchsorted(ends, np.where(end == NO_END, _FOREVER, end), "left")
    inside = np.flatnonzero(high > low)
    if len(inside):
        first, query = distinct(low[inside], high[inside])
        bounds = np.column_stack((low[inside[first]], high[inside[first]]))
        starts = np.append(range_start[order], _FOREVER)  # every bound is a place in it
        earliest = np.minimum.reduceat(starts, bounds.ravel())[::2][query]
        found[inside] = np.where(earliest < start[inside], earliest - 1, start[inside])
    return found
