"""Work outside operators: functions that samples saw on a thread, less the operators within them.

A sample is exact to its period, so these are estimates. Of a function's stretch counts what is in no operator and no
call that was recorded, and in no function that it called itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from profd.events import NO_END, EventTable, Kind
from profd.events.table import Array
from profd.query import rules
from profd.query.accounting import KNOWN, beside_of, by_thread, window_of
from profd.query.intervals import merged
from profd.segments.meta import TraceMeta

OUTSIDE_COLUMNS: Final = ("name", "parent")  # beside those of the coverage
FUNCTIONS: Final = 5
_RECORDED: Final = (*KNOWN[0], *KNOWN[1])
_SPANS_MAX: Final = 1 << 22  # operators apart from one another: 64 MiB


@dataclass(frozen=True, slots=True)
class _Samples:
    row: Array
    parent: Array
    name: Array
    start: Array
    end: Array


class Outside:
    """Of the threads of a trace that have samples beside them; fed with tables in start order."""

    def __init__(self, meta: TraceMeta) -> None:
        self._window = window_of(meta)
        self._thread_of = beside_of(meta.tracks)
        own = np.arange(len(self._thread_of))
        self._sampled = np.zeros(len(own), dtype=bool)
        self._sampled[self._thread_of[self._thread_of != own]] = True
        self._names: list[str] = []
        self._samples: dict[int, list[_Samples]] = {}
        self._recorded: dict[int, list[tuple[Array, Array]]] = {}
        self._spans = 0

    @property
    def wanted(self) -> bool:
        """There is something to be said."""
        return self._window is not None and bool(self._sampled.any())

    def add(self, table: EventTable) -> None:
        """Take in the next stretch of the trace."""
        if self._window is None or not self.wanted or self._spans > _SPANS_MAX:
            return
        self._names = rules.names_of(table)
        kind, thread = table.column("kind"), table.column("thread")
        there = (thread >= 0) & (thread < len(self._thread_of)) & rules.is_cpu(table.column("device_type"))
        first, last = self._window
        start = np.clip(table.columns["start"], first, last)
        end = table.column("end")
        end = np.clip(np.where(end == NO_END, last, end), start, last)
        samples = np.flatnonzero(there & (kind == Kind.SAMPLE))
        recorded = np.flatnonzero(there & rules.is_kind(kind, *_RECORDED) & ~rules.is_async(table))
        for number, rows in by_thread(thread, samples):
            parent, name = table.column("parent")[rows], table.column("name")[rows]
            found = _Samples(rows + table.first_row, parent, name, start[rows], end[rows])
            self._samples.setdefault(int(self._thread_of[number]), []).append(found)
        for number, rows in by_thread(thread, recorded[self._sampled[thread[recorded]]]):
            spans = merged(start[rows], end[rows])
            self._recorded.setdefault(number, []).append(spans)
            self._spans += len(spans[0])

    def of(self, thread: int) -> list[dict[str, Any]] | None:
        """The functions with most time, by the track number of their thread; None: not sampled, or too much to say."""
        parts = self._samples.get(thread)
        if parts is None or self._spans > _SPANS_MAX:
            return None
        row, parent, name, start, end = (
            np.concatenate([getattr(part, field) for part in parts])
            for field in ("row", "parent", "name", "start", "end")
        )
        rows = _Samples(row, parent, name, start, end)
        covered = _Covered(*map(np.concatenate, zip(*self._recorded.get(thread, [_NOTHING]), strict=True)))
        spent = covered.outside(rows.start, rows.end)
        place = np.minimum(np.searchsorted(rows.row, rows.parent), len(rows.row) - 1)
        inner = np.flatnonzero(rows.row[place] == rows.parent)
        own = spent - np.bincount(place[inner], weights=spent[inner], minlength=len(spent)).astype(np.int64)
        names, code = np.unique(rows.name, return_inverse=True)
        total = np.bincount(code, weights=np.maximum(own, 0)).astype(np.int64)
        most = [at for at in np.argsort(-total, kind="stable")[:FUNCTIONS].tolist() if total[at] > 0]
        return [{"name": self._names[int(names[at])], "wall_ns": int(total[at])} for at in most]


_NOTHING: Final = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


class _Covered:
    """How much of any stretch these intervals leave."""

    def __init__(self, start: Array, end: Array) -> None:
        self._start, self._end = merged(start, end)
        self._before = np.concatenate([[0], np.cumsum(self._end - self._start)])

    def outside(self, start: Array, end: Array) -> Array:
        """The length of each less what is covered of it."""
        left: Array = (end - start) - (self._until(end) - self._until(start))
        return left

    def _until(self, time: Array) -> Array:
        """How much is covered before these times."""
        begun = np.searchsorted(self._start, time, side="right")
        if not len(self._start):
            return np.zeros(len(time), dtype=np.int64)
        last = np.maximum(begun - 1, 0)
        open_yet = np.where(begun > 0, np.minimum(time, self._end[last]) - self._start[last], 0)
        found: Array = self._before[last] + open_yet
        return found
