"""Kernels, copies and fills of a trace as arrays, and the calls that launched them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.events import NO_END, Dictionary, EventTable, Kind
from profd.events.table import Array
from profd.query import rules
from profd.query.devices import DEVICE_WORK
from profd.query.whole import check_size
from profd.segments.reader import TraceReader

_COLUMNS: Final = (
    "name", "kind", "device_type", "device", "stream", "start", "end", "linked", "correlation", "bytes",
)  # fmt: skip
SPAN_MAX_NS: Final = 1 << 62  # from the first launch: what is later is taken for that late, so that differences fit
_LAST_NS: Final = int(np.iinfo(np.int64).max)
_INTEGERS: Final = ("device", "stream", "linked", "correlation", "bytes")


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """All device work of a trace in start order. Arrays are as long as there is work; times in ns.

    `device`, `stream`, `correlation` and `bytes` are NO_END where they are not known.
    """

    name: Array  # code
    kind: Array
    device_type: Array
    device: Array
    stream: Array
    start: Array
    end: Array  # `start` where no end was seen
    correlation: Array
    bytes: Array
    linked: Array  # bool: its launch is known
    launch: Array  # when that began, not after `start`; `start` where it is not known
    names: Dictionary
    called: Array  # bool: a call of its process with its correlation id is in the trace

    def __len__(self) -> int:
        return len(self.start)


def device_work(reader: TraceReader) -> DeviceWork:
    """Gather it, a segment at a time. Exhausted for a trace too large to be held at once."""
    check_size(len(reader), "export a --window of the trace, import that, and ask it")
    return _Gathering().of(reader)


class _Gathering:
    def __init__(self) -> None:
        self._parts: dict[str, list[Array]] = {name: [] for name in _COLUMNS}
        self._starts: list[Array] = []  # of every row: any may have launched something
        self._processes: list[Array] = []  # of the work
        self._calls: list[tuple[Array, Array]] = []  # their processes and correlation ids

    def of(self, reader: TraceReader) -> DeviceWork:
        for table in reader.iterate((*_COLUMNS, "process"), args=False):
            self._add(table)
        parts = {name: _joined(arrays) for name, arrays in self._parts.items()}
        start_of, link = _joined(self._starts), parts["linked"]
        linked = (link >= 0) & (link < len(start_of))
        launch = parts["start"].copy()
        launch[linked] = np.minimum(start_of[link[linked]], launch[linked])
        latest = min(int(launch.min()) + SPAN_MAX_NS, _LAST_NS) if len(launch) else 0
        for times in (launch, parts["start"], parts["end"]):
            np.minimum(times, latest, out=times)
        correlation = parts["correlation"]
        return DeviceWork(
            **{name: parts[name] for name in _COLUMNS if name != "linked"},
            linked=linked,
            launch=launch,
            names=reader.dictionaries.get("name", Dictionary()),
            called=(correlation > 0) & self._are_called(correlation),
        )

    def _add(self, table: EventTable) -> None:
        kinds, start = table.column("kind"), table.columns["start"]
        self._starts.append(start)
        calls = np.flatnonzero(rules.is_kind(kinds, Kind.RUNTIME, Kind.DRIVER))
        self._calls.append((table.column("process")[calls], table.column("correlation")[calls]))
        rows = np.flatnonzero(rules.is_kind(kinds, *DEVICE_WORK) & ~rules.is_cpu(table.column("device_type")))
        self._processes.append(table.column("process")[rows])
        for name in ("name", "kind", "device_type", *_INTEGERS):
            self._parts[name].append(table.column(name)[rows])
        begin, end = start[rows], table.column("end")[rows]
        self._parts["start"].append(begin)
        self._parts["end"].append(np.where((end != NO_END) & (end > begin), end, begin))

    def _are_called(self, correlation: Array) -> Array:
        """Which of these ids a call of the same process has: each process counts its calls from 1.

        Kineto puts the work of a device under a process of its own, which calls nothing: there any process's will do.
        """
        calls = len(correlation)  # from here on in `process` and `ids`
        process = _numbered(_joined([*self._processes, *(process for process, _ in self._calls)]))
        ids = np.concatenate([correlation, *(ids for _, ids in self._calls)])
        pairs = _numbered(ids) * max(len(process), 1) + process
        apart = ~np.isin(process[:calls], process[calls:])
        found: Array = np.isin(pairs[:calls], pairs[calls:]) | (apart & np.isin(correlation, ids[calls:]))
        return found


def _numbered(values: Array) -> Array:
    """Equal values have equal numbers from 0, fewer than there are values."""
    numbers: Array = np.unique(values, return_inverse=True)[1]
    return numbers


def _joined(arrays: list[Array]) -> Array:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)
