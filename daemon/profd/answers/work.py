"""Device work: what ran when and where, and when its launch began; some 70 bytes for each, 16 for each call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.answers.calls import CALLS, joined
from profd.events import NO_END, EventTable
from profd.events.table import Array
from profd.query import rules
from profd.query.devices import DEVICE_WORK
from profd.query.view import durations

_SAID: Final = ("name", "kind", "thread", "linked", "device", "stream")
WORK_COLUMNS: Final = (*_SAID, "start", "end", "device_type")
NO_PLACE: Final = -1


@dataclass(frozen=True, slots=True)
class Work:
    """Kernels, copies and fills of all devices in start order."""

    row: Array  # of the trace
    start: Array  # ns
    end: Array
    name: Array  # codes
    kind: Array
    stream: Array  # track numbers: devices of one process number their streams alike
    launch: Array  # when the call that launched it began; NO_END: not known
    call: Array  # row of that call; NO_ROW: none
    device: Array  # as recorded; NO_END: not numbered
    number: Array  # of the stream, as recorded; NO_END: none

    def __len__(self) -> int:
        return len(self.row)

    def take(self, at: Array) -> Work:
        """That at these places."""
        return Work(*(getattr(self, name)[at] for name in self.__slots__))


class WorkGathered:
    """Fed with tables in start order, which have WORK_COLUMNS."""

    def __init__(self) -> None:
        self._work: list[tuple[Array, ...]] = []
        self._calls: list[tuple[Array, ...]] = []
        self.rows = 0  # that are held

    def add(self, table: EventTable) -> None:
        """Take in the next stretch of the trace."""
        kinds, start = table.column("kind"), table.columns["start"]
        calls = np.flatnonzero(rules.is_kind(kinds, *CALLS))
        self._calls.append((calls + table.first_row, start[calls]))
        self.rows += len(calls)
        rows = np.flatnonzero(rules.is_kind(kinds, *DEVICE_WORK) & ~rules.is_cpu(table.column("device_type")))
        if len(rows):
            self.rows += len(rows)
            end = start[rows] + durations(table)[rows]
            said = (table.column(name)[rows] for name in _SAID)
            self._work.append((rows + table.first_row, start[rows], end, *said))

    def work(self) -> Work:
        """All of it."""
        row, start, end, name, kind, stream, call, device, number = joined(self._work, 3 + len(_SAID))
        called, begun = joined(self._calls, 2)
        place = places_of(called, call)
        launch = np.full(len(row), NO_END, dtype=np.int64)
        known = place != NO_PLACE
        launch[known] = begun[place[known]]
        return Work(row, start, end, name, kind, stream, launch, call, device, number)


def places_of(rows: Array, wanted: Array) -> Array:
    """Where each wanted row is among the ascending rows; NO_PLACE: it is not."""
    if not len(rows):
        return np.full(len(wanted), NO_PLACE)
    place = np.minimum(np.searchsorted(rows, wanted), len(rows) - 1)
    found: Array = np.where(rows[place] == wanted, place, NO_PLACE)
    return found
