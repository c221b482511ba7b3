"""Device work for detectors: what ran when, and when its launch began; 56 bytes for each, 16 for each call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profd.answers.calls import CALLS, joined
from profd.events import NO_END, EventTable
from profd.events.table import Array
from profd.query import rules
from profd.query.devices import DEVICE_WORK
from profd.query.view import durations


@dataclass(frozen=True, slots=True)
class Work:
    """Kernels, copies and fills of all devices in start order."""

    row: Array  # of the trace
    start: Array  # ns
    end: Array
    name: Array  # codes
    kind: Array
    stream: Array
    launch: Array  # when the call that launched it began; NO_END: not known

    def __len__(self) -> int:
        return len(self.row)

    def take(self, at: Array) -> Work:
        """That at these places."""
        return Work(*(getattr(self, name)[at] for name in self.__slots__))


class WorkGathered:
    """Fed with tables in start order, which have name, kind, start, end, device_type, stream and linked."""

    def __init__(self) -> None:
        self._work: list[tuple[Array, ...]] = []
        self._calls: list[tuple[Array, ...]] = []

    def add(self, table: EventTable) -> None:
        """Take in the next stretch of the trace."""
        kinds, start = table.column("kind"), table.columns["start"]
        calls = np.flatnonzero(rules.is_kind(kinds, *CALLS))
        self._calls.append((calls + table.first_row, start[calls]))
        rows = np.flatnonzero(rules.is_kind(kinds, *DEVICE_WORK) & ~rules.is_cpu(table.column("device_type")))
        if len(rows):
            end = start[rows] + durations(table)[rows]
            said = (table.column(name)[rows] for name in ("name", "kind", "stream", "linked"))
            self._work.append((rows + table.first_row, start[rows], end, *said))

    def work(self) -> Work:
        """All of it."""
        row, start, end, name, kind, stream, linked = joined(self._work, 7)
        called, begun = joined(self._calls, 2)
        launch = np.full(len(row), NO_END, dtype=np.int64)
        if len(called) and len(row):
            place = np.minimum(np.searchsorted(called, linked), len(called) - 1)
            known = called[place] == linked
            launch[known] = begun[place[known]]
        return Work(row, start, end, name, kind, stream, launch)
