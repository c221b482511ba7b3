"""The part of a trace that findings are about: its training steps but the first, those of a window, or all of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.answers.spans import Spans
from profd.derive.steps import Steps
from profd.events.table import Array
from profd.query.accounting import window_of
from profd.segments.meta import TraceMeta
from profd.segments.reader import Window

SHORT_NS: Final = 100_000_000
"""One step alone says what is usual only where it lasted this long: `amd_minitoy`'s second step, of 49 us, is empty."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Where detectors look. Without steps it is the window, and what needs steps stays silent."""

    spans: Spans
    start: Array  # of each measured step; none: there are no steps
    end: Array
    numbers: list[int]  # what `--step` calls them
    how: str  # as in Steps; empty without
    thread: int  # the track that the steps are on; -1 without
    left_out: int  # steps before them: the first one warms up
    lacking: str  # why there are none, or too few; empty: there are enough

    @property
    def steps(self) -> int:
        """How many."""
        return len(self.start)

    @property
    def total(self) -> int:
        """The time that shares are of."""
        return self.spans.total

    @property
    def durations(self) -> Array:
        """Of each step in ns."""
        return self.end - self.start


def measure(steps: Steps, meta: TraceMeta, why_none: str, chosen: Window | None = None) -> Measured:
    """The steps of the thread with most of them, without the first one; the window where they are too few.

    `chosen`: those that lie in it alone, and one is enough; the first one, too, where it is the only one.
    """
    window = _within(window_of(meta), chosen)
    none = np.zeros(0, dtype=np.int64)
    edges = [np.array([edge], dtype=np.int64) for edge in window] if window else [none, none]
    if not len(steps):
        return Measured(Spans(*edges), none, none, [], "", -1, 0, f"Steps: {why_none}")
    thread = _busiest(steps.thread)
    at = np.flatnonzero(steps.thread == thread)
    at = at[_apart(steps.start[at], steps.end[at])]
    places, lacking = _chosen(steps.start[at], steps.end[at], chosen)
    if lacking:
        return Measured(Spans(*edges), none, none, [], "", thread, len(at), lacking)
    start, end = steps.start[at[places]], steps.end[at[places]]
    called = steps.numbers
    numbers = [called[place] for place in at[places].tolist()]
    return Measured(Spans.union(start, end), start, end, numbers, steps.how, thread, int(places[0]), "")


def _within(window: Window | None, chosen: Window | None) -> Window | None:
    """The window of a trace, cut to the chosen one; None: nothing is left."""
    if window is None or chosen is None:
        return window
    low, high = max(window[0], chosen[0]), min(window[1], chosen[1])
    return (low, high) if low < high else None


def _chosen(start: Array, end: Array, window: Window | None) -> tuple[Array, str]:
    """(places of the steps to be measured, why they are too few)."""
    places = np.arange(1, len(start))
    if window is None:
        enough = len(places) >= 2 or int((end - start)[1:].sum()) >= SHORT_NS
        few = f"{len(start)} of the trace's steps can be measured, and the first warms up: record three steps or more"
        return places, "" if enough else few
    inside = np.flatnonzero((start >= window[0]) & (end <= window[1]))
    places = np.intersect1d(inside, places) if len(inside) > 1 else inside
    return places, "" if len(places) else "no whole step lies in this window: widen it, or name a step (--step)"


def _busiest(thread: Array) -> int:
    values, first, count = np.unique(thread, return_index=True, return_counts=True)
    return int(values[np.lexsort((first, -count))[0]])


def _apart(start: Array, end: Array) -> Array:
    """Which steps begin when all before them have ended: a step within a step is not one."""
    reached = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]])
    found: Array = (start >= reached) & (end > start)
    return found
