"""Allocations: which ranges they belong to, how much there was at most, and where there was none left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from profd.events import NO_END, NO_ROW, DeviceType, EventTable
from profd.events.table import Array

MEMORY_NAME: Final = "[memory]"
OUT_OF_MEMORY_NAME: Final = "[OutOfMemory]"
MEMORY_COLUMNS: Final = (
    *("name", "start", "process", "device_type", "device"),
    *("bytes", "total_allocated", "total_reserved"),
)
MEMORY_DEVICES_MAX: Final = 1024  # of one trace; more are made up
_DEVICE_LABELS: Final = {int(device): device.label for device in DeviceType}


def named(table: EventTable, name: str) -> Array:
    """Rows with this name."""
    known = table.dictionaries.get("name")
    try:
        code = known.values.index(name) if known is not None else NO_ROW
    except ValueError:
        code = NO_ROW
    if code == NO_ROW:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(table.column("name") == code)


def usage_within(table: EventTable, rows: Array, lasting: Array) -> tuple[Array, Array]:
    """(bytes on the host, bytes on devices) allocated less freed while each of `rows` was open; 0 elsewhere.

    As in torch every record of the process counts, on whichever thread, those at
    the first and the last ns included. `lasting` are durations in ns.
    """
    cpu, device = np.zeros(len(table), dtype=np.int64), np.zeros(len(table), dtype=np.int64)
    records = _known(table, named(table, MEMORY_NAME))
    if not len(records):
        return cpu, device
    process, start = table.column("process").astype(np.int64), table.columns["start"]
    # Records by process and row number: those of a range are next to each other.
    span = len(table) + 1
    key = process[records] * span + records
    order = np.argsort(key, kind="stable")
    key, records = key[order], records[order]
    first = np.searchsorted(start, start[rows], side="left")
    after = np.searchsorted(start, _saturating(start[rows], lasting[rows]), side="right")
    low, high = (np.searchsorted(key, process[rows] * span + edge) for edge in (first, after))
    size, host = table.column("bytes")[records], _on_host(table, records)
    for total, counted in ((cpu, host), (device, ~host)):
        running = np.concatenate([[0], np.cumsum(np.where(counted, size, 0))])
        total[rows] = running[high] - running[low]
    return cpu, device


def own_usage(table: EventTable, rows: Array) -> tuple[Array, Array]:
    """(bytes on the host, bytes on devices) of the given allocation records themselves."""
    size, host = table.column("bytes")[rows], _on_host(table, rows)
    size = np.where(size == NO_END, 0, size)
    return np.where(host, size, 0), np.where(host, 0, size)


def _known(table: EventTable, rows: Array) -> Array:
    known: Array = rows[table.column("bytes")[rows] != NO_END]
    return known


def _on_host(table: EventTable, rows: Array) -> Array:
    host: Array = table.column("device_type")[rows] == DeviceType.CPU
    return host


def _saturating(start: Array, lasting: Array) -> Array:
    end = start + lasting
    return np.where(end < start, np.iinfo(np.int64).max, end)


@dataclass(slots=True)
class DeviceMemory:
    """The history of one device's memory. Bytes; the host is device None."""

    device_type: str
    device: int | None
    allocations: int = 0
    frees: int = 0
    allocated_bytes: int = 0
    freed_bytes: int = 0
    net_bytes: int = 0  # in use at the end, less what was in use at the start
    peak_bytes: int = 0  # in use at most: the allocator's own count where it was recorded, else since the start
    peak_at_ns: int | None = None
    peak_reserved_bytes: int | None = None
    out_of_memory: int = 0


@dataclass(slots=True)
class MemoryUse:
    """Memory by process and device, fed with tables in start order."""

    devices: dict[tuple[int, int, int], DeviceMemory] = field(default_factory=dict)

    def add(self, table: EventTable) -> None:
        """Take in the next stretch of the trace."""
        for records, full in ((named(table, MEMORY_NAME), False), (named(table, OUT_OF_MEMORY_NAME), True)):
            records = records if full else _known(table, records)
            if not len(records):
                continue
            keys = [table.column(name)[records].astype(np.int64) for name in ("process", "device_type", "device")]
            order = np.lexsort(keys[::-1])  # stable: in start order within a device
            places = np.stack(keys)[:, order]
            cuts = np.flatnonzero((places[:, 1:] != places[:, :-1]).any(axis=0)) + 1
            for first, some in zip([0, *cuts.tolist()], np.split(records[order], cuts), strict=True):
                self._add(table, some, places[:, first].tolist(), full)

    def _add(self, table: EventTable, records: Array, place: list[int], full: bool) -> None:
        process, kind, device = place
        key = (process, kind, device)
        if key not in self.devices and len(self.devices) >= MEMORY_DEVICES_MAX:
            return
        number = None if device == NO_END or device < 0 else device
        use = self.devices.setdefault(key, DeviceMemory(_DEVICE_LABELS.get(kind, "other"), number))
        if full:
            use.out_of_memory += len(records)
        else:
            _count(use, table, records)

    def result(self) -> list[DeviceMemory]:
        """Per process and device, in this order."""
        return [use for _, use in sorted(self.devices.items())]


def _count(use: DeviceMemory, table: EventTable, records: Array) -> None:
    size = table.column("bytes")[records]
    grown = size > 0
    use.allocations += int(grown.sum())
    use.frees += int((size < 0).sum())
    use.allocated_bytes += int(size[grown].sum())
    use.freed_bytes -= int(size[size < 0].sum())
    running = use.net_bytes + np.cumsum(size)
    use.net_bytes = int(running[-1])
    total = table.column("total_allocated")[records]
    in_use = np.where(total == NO_END, running, total)
    at = int(np.argmax(in_use))
    if use.peak_at_ns is None or int(in_use[at]) > use.peak_bytes:
        use.peak_bytes, use.peak_at_ns = int(in_use[at]), int(table.columns["start"][records[at]])
    reserved = table.column("total_reserved")[records]
    reserved = reserved[reserved > 0]  # the host reserves nothing
    if len(reserved):
        use.peak_reserved_bytes = max(use.peak_reserved_bytes or 0, int(reserved.max()))
