"""Kernels, copies and fills of a trace as arrays, and the calls that launched them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.errors import Exhausted
from profd.events import NO_END, Dictionary, EventTable, Kind
from profd.events.table import Array
from profd.limits import DEVICE_WORK_MAX
from profd.query import rules
from profd.query.devices import DEVICE_WORK
from profd.segments.reader import TraceReader

_KEPT: Final = ("name", "kind", "device_type", "device", "stream", "bytes")
_OF_LAUNCHES: Final = ("linked", "correlation", "process")
SPAN_MAX_NS: Final = 1 << 62  # from the first launch: what is later is taken for that late, so that differences fit
_LAST_NS: Final = int(np.iinfo(np.int64).max)
_PAIRS_HELD: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """All device work of a trace in start order. Arrays are as long as there is work; times in ns.

    `device`, `stream` and `bytes` are NO_END where they are not known.
    """

    name: Array  # code
    kind: Array
    device_type: Array
    device: Array
    stream: Array
    start: Array
    end: Array  # `start` where no end was seen
    bytes: Array
    linked: Array  # bool: its launch is known
    launch: Array  # when that began, not after `start`; `start` where it is not known
    names: Dictionary
    stated: Array  # bool: its launch is known, or a call of its process with its correlation id is in the trace

    def __len__(self) -> int:
        return len(self.start)


def device_work(reader: TraceReader) -> DeviceWork:
    """Gather it, a segment at a time, some 55 bytes for each. Exhausted where that is too much for a worker."""
    return _Gathering(reader).work()


class _Gathering:
    def __init__(self, reader: TraceReader) -> None:
        self._reader = reader
        self._count = 0
        self._callers: Array = np.zeros(0, dtype=np.int32)  # processes that make calls
        # Places of work, with rows of other segments that launched it, or where no row did, correlation and process.
        self._far: list[tuple[Array, ...]] = []
        self._unlinked: list[tuple[Array, ...]] = []
        columns: dict[str, Array] = {}
        for table in reader.iterate((*_KEPT, *_OF_LAUNCHES, "end"), args=False):
            first = self._count
            for name, values in self._of(table).items():
                columns[name] = filled(columns.get(name), values, first, reader.meta.gpu_events or 0)
        none = np.zeros(0, dtype=np.int64)
        self._columns = {name: columns.get(name, none)[: self._count] for name in (*_KEPT, "start", "end", "launch")}

    def work(self) -> DeviceWork:
        """All of it."""
        start, end, launch = (self._columns[name] for name in ("start", "end", "launch"))
        self._look_up(launch)
        np.minimum(launch, start, out=launch)
        latest = min(int(launch.min()) + SPAN_MAX_NS, _LAST_NS) if len(launch) else 0
        for times in (launch, start, end):
            np.minimum(times, latest, out=times)
        linked = np.ones(self._count, dtype=bool)
        stated = linked.copy()
        if self._unlinked:
            place, correlation, process = map(np.concatenate, zip(*self._unlinked, strict=True))
            linked[place] = False
            stated[place] = self._are_called(correlation, process)
        names = self._reader.dictionaries.get("name", Dictionary())
        return DeviceWork(**self._columns, linked=linked, names=names, stated=stated)

    def _of(self, table: EventTable) -> dict[str, Array]:
        """Columns of the work of a segment."""
        kinds, start_of = table.column("kind"), table.columns["start"]
        calls = rules.is_kind(kinds, Kind.RUNTIME, Kind.DRIVER)
        self._callers = np.union1d(self._callers, table.column("process")[calls])
        rows = np.flatnonzero(rules.is_kind(kinds, *DEVICE_WORK) & ~rules.is_cpu(table.column("device_type")))
        if self._count + len(rows) > DEVICE_WORK_MAX:
            raise Exhausted(
                f"the trace has more than {DEVICE_WORK_MAX:,} kernels, copies and fills, the limit of this question: "
                "export a --window of the trace, import that, and ask it"
            )
        start, end = start_of[rows], table.column("end")[rows]
        link, correlation, process = (table.column(name)[rows] for name in _OF_LAUNCHES)
        linked, near = (link >= 0) & (link < len(self._reader)), link - table.first_row
        here = (near >= 0) & (near < len(table))
        launch = start.copy()
        launch[here] = start_of[near[here]]
        far, unlinked = np.flatnonzero(linked & ~here), np.flatnonzero(~linked)
        self._far.append((far + self._count, link[far]))
        self._unlinked.append((unlinked + self._count, correlation[unlinked], process[unlinked]))
        self._count += len(rows)
        end = np.where((end != NO_END) & (end > start), end, start)
        return {name: table.column(name)[rows] for name in _KEPT} | {"start": start, "end": end, "launch": launch}

    def _look_up(self, launch: Array) -> None:
        """When the launches began that lie in another segment than their work."""
        if not any(len(link) for _, link in self._far):
            return
        place, link = (np.concatenate(parts) for parts in zip(*self._far, strict=True))
        launch[place] = begun(self._reader, link)

    def _are_called(self, correlation: Array, process: Array) -> Array:
        """Which of these ids a call of the same process has: each process counts its calls from 1.

        Kineto puts the work of a device under a process of its own, which calls nothing: there any process's will do.
        """
        ids = np.unique(correlation[correlation > 0])
        if not len(ids):
            return np.zeros(len(correlation), dtype=bool)
        callers = self._callers
        pairs = self._calls(ids)
        id_place, place = np.searchsorted(ids, correlation), np.searchsorted(callers, process)
        calling = np.isin(process, callers)
        same = calling & np.isin(id_place * len(callers) + np.where(calling, place, 0), pairs)
        any_ = ~calling & np.isin(id_place, pairs // max(len(callers), 1))
        found: Array = (correlation > 0) & (same | any_)
        return found

    def _calls(self, ids: Array) -> Array:
        """Which ids calls of which processes have: the place among `ids`, times how many processes call, and theirs."""
        found, held = [np.zeros(0, dtype=np.int64)], 0
        for table in self._reader.iterate(("kind", "process", "correlation"), args=False):
            given = table.column("correlation")
            of_ids = rules.is_kind(table.column("kind"), Kind.RUNTIME, Kind.DRIVER) & np.isin(given, ids)
            place = np.searchsorted(self._callers, table.column("process")[of_ids])
            found.append(np.unique(np.searchsorted(ids, given[of_ids]) * len(self._callers) + place))
            held += len(found[-1])
            if held > _PAIRS_HELD:
                found, held = [np.unique(np.concatenate(found))], 0
        return np.unique(np.concatenate(found))


def begun(reader: TraceReader, rows: Array, *kinds: Kind) -> Array:
    """When each of these rows of the trace began, a segment at a time; with `kinds` NO_END for rows of others."""
    found = np.full(len(rows), NO_END, dtype=np.int64)
    order = np.argsort(rows, kind="stable")
    ascending = rows[order]
    edges = [np.searchsorted(ascending, (info.first_row, info.first_row + info.rows)) for info in reader.segments]
    held = [number for number, (low, high) in enumerate(edges) if low < high]
    columns = ("start", "kind") if kinds else ("start",)
    for number, table in zip(held, reader.iterate(columns, segments=held, args=False), strict=True):
        some = slice(*edges[number])
        place = ascending[some] - table.first_row
        start = table.columns["start"][place]
        fits = rules.is_kind(table.column("kind")[place], *kinds) if kinds else True
        found[order[some]] = np.where(fits, start, NO_END)
    return found


def filled(column: Array | None, values: Array, at: int, expected: int) -> Array:
    """The column with these values at a place. It is made once, as long as the trace says: parts would stay about."""
    if column is None or at + len(values) > len(column):
        longer = np.empty(max(min(expected, DEVICE_WORK_MAX), 2 * at, at + len(values)), dtype=values.dtype)
        longer[:at] = 0 if column is None else column[:at]
        column = longer
    column[at : at + len(values)] = values
    return column
