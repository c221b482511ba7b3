"""Device work: what ran when and where, and when its launch began; some 75 bytes for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.answers.calls import CALLS
from profd.events import NO_END, EventTable
from profd.events.table import Array
from profd.query import rules
from profd.query.device_work import begun, filled
from profd.query.devices import DEVICE_WORK
from profd.query.view import durations
from profd.segments.reader import TraceReader

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
    """Fed with tables in start order, which have WORK_COLUMNS. `expected`: so much work, about."""

    def __init__(self, expected: int | None = None) -> None:
        self._expected = expected or 0
        self._columns: dict[str, Array] = {}
        self.rows = 0  # that are held

    def add(self, table: EventTable) -> None:
        """Take in the next stretch of the trace."""
        kinds, start = table.column("kind"), table.columns["start"]
        rows = np.flatnonzero(rules.is_kind(kinds, *DEVICE_WORK) & ~rules.is_cpu(table.column("device_type")))
        if len(rows):
            end = start[rows] + durations(table)[rows]
            said = {name: table.column(name)[rows] for name in _SAID}
            near = said["linked"] - table.first_row
            here = np.flatnonzero((near >= 0) & (near < len(table)))
            here = here[rules.is_kind(kinds[near[here]], *CALLS)]
            launch = np.full(len(rows), NO_END, dtype=np.int64)
            launch[here] = start[near[here]]
            more = {"row": rows + table.first_row, "start": start[rows], "end": end, "launch": launch, **said}
            for name, values in more.items():
                self._columns[name] = filled(self._columns.get(name), values, self.rows, self._expected)
            self.rows += len(rows)

    def work(self, reader: TraceReader) -> Work:
        """All of it. Launches in other segments than their work are looked up there."""
        none = np.zeros(0, dtype=np.int64)
        names = ("row", "start", "end", "launch", *_SAID)
        all_ = (self._columns.get(name, none)[: self.rows] for name in names)
        row, start, end, launch, name, kind, stream, call, device, number = all_
        far = np.flatnonzero((launch == NO_END) & (call >= 0) & (call < len(reader)))
        if len(far):
            launch[far] = begun(reader, call[far], *CALLS)
        return Work(row, start, end, name, kind, stream, launch, call, device, number)


def places_of(rows: Array, wanted: Array) -> Array:
    """Where each wanted row is among the ascending rows; NO_PLACE: it is not."""
    if not len(rows):
        return np.full(len(wanted), NO_PLACE)
    place = np.minimum(np.searchsorted(rows, wanted), len(rows) - 1)
    found: Array = np.where(rows[place] == wanted, place, NO_PLACE)
    return found
