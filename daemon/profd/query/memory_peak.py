"""Memory at its peak: what was alive when most was, by stack, as a tree (docs/json.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from profd import _engine
from profd.derive.memory import MEMORY_DEVICES_MAX, MEMORY_NAME, named
from profd.errors import BadInput
from profd.events import NO_END, NO_ROW, DeviceType, EventTable
from profd.events.table import Array
from profd.limits import MERGED_PATHS_MAX
from profd.query.allocations import BLOCK_COLUMNS, NO_ADDRESSES, NOT_RECORDED, AllocationRecords, records_of
from profd.query.hottest import hottest
from profd.query.memory_tree import tree_of
from profd.query.part import Part, part_of, read_part
from profd.segments.reader import TraceReader

NONE_HERE: Final = "no allocation was recorded in this part of the trace"
_NAMED_MAX: Final = 8  # devices that a refusal names
_COLUMNS: Final = (*BLOCK_COLUMNS, "thread")
_LABELS: Final = {int(device): device.label for device in DeviceType}


def memory_peak(trace: TraceReader, *, limit: int, device: str = "", **part: Any) -> dict[str, Any]:
    """What was alive at the moment when most was, at most `limit` paths (0, or more than MERGED_PATHS_MAX: that many).

    Of allocations in the part; a thread has those that it made, whichever thread freed them. `device`: as in `devices`
    of the answer, of any case and with a colon, too; empty: the first of them. `part`: arguments of `part_of`. BadInput
    for a device without allocations, Exhausted where the part does not fit into a worker.
    """
    chosen = part_of(trace, **part)
    table = read_part(trace, Part(chosen.window), _COLUMNS)
    records = records_of(table)
    devices = [] if records is None else _devices(table, records, _owned(table, records, chosen))
    if records is None or not devices:
        return _nothing(table, chosen, records)
    found = _named(devices, device)
    places = found.alive(records)
    rows = records.rows[places]
    tree = tree_of(table, rows, records.size[places])
    shown = hottest(tree.above, tree.bytes, min(limit or MERGED_PATHS_MAX, MERGED_PATHS_MAX))
    start = trace.meta.start_ns or 0
    return {
        "message": None,
        "devices": [one.as_json(start) for one in devices],
        **found.as_json(start),
        "since_ns": start if chosen.window is None else max(start, chosen.window[0]),
        "in_use_bytes": _in_use(table, records.rows[found.at]),
        "blocks": len(rows),
        "paths": len(tree) + tree.left_out,
        "left_out": len(tree) + tree.left_out - len(shown),
        "nodes": [tree.as_json(number, depth) for number, depth in shown],
    }


def _nothing(table: EventTable, part: Part, records: AllocationRecords | None) -> dict[str, Any]:
    some = len(named(table, MEMORY_NAME)) > 0
    without = NO_ADDRESSES if some and records is None else NONE_HERE
    return {
        "message": without if some or not part.is_whole else NOT_RECORDED,
        "devices": [],
        **dict.fromkeys(("name", "device_type", "device", "peak_bytes", "at_ns", "after_ns", "since_ns"), None),
        "in_use_bytes": None,
        **dict.fromkeys(("blocks", "paths", "left_out"), 0),
        "nodes": [],
    }


@dataclass(frozen=True, slots=True)
class _DevicePeak:
    """A device on which something was allocated, and when most of that was alive."""

    device_type: int
    device: int
    peak_bytes: int
    at: int  # the place of the record from which on it is
    at_ns: int
    places: Array  # of its allocations among the records

    @property
    def name(self) -> str:
        label = _LABELS.get(self.device_type, "other")
        return label if self.device < 0 else f"{label} {self.device}"

    @property
    def order(self) -> tuple[bool, int, str]:
        """Of accelerators first, as they are small, and where most was alive."""
        return self.device_type == DeviceType.CPU, -self.peak_bytes, self.name

    def alive(self, records: AllocationRecords) -> Array:
        """Places of the allocations that are alive at the peak."""
        until = records.following[self.places]
        found: Array = self.places[(self.places <= self.at) & ((until == NO_ROW) | (until > self.at))]
        return found

    def as_json(self, start_ns: int) -> dict[str, Any]:
        return {
            "name": self.name,
            "device_type": _LABELS.get(self.device_type, "other"),
            "device": None if self.device < 0 else self.device,
            "peak_bytes": self.peak_bytes,
            "at_ns": self.at_ns,
            "after_ns": self.at_ns - start_ns,
        }


def _owned(table: EventTable, records: AllocationRecords, part: Part) -> Array:
    """Which records are allocations of the part's threads."""
    owned = records.size > 0
    if part.threads is not None:
        owned &= np.isin(table.column("thread")[records.rows], list(part.threads))
    return owned


def _devices(table: EventTable, records: AllocationRecords, owned: Array) -> list[_DevicePeak]:
    """The devices with such allocations, the one that a graph is drawn of by default first."""
    change = np.where(owned, records.size, 0)
    ends = owned & (records.following != NO_ROW)
    change[records.following[ends]] -= records.size[ends]
    places = [table.column(name)[records.rows].astype(np.int64) for name in ("device_type", "device")]
    group, first = _engine.group_rows(places)
    order = _engine.argsort(group)
    ends_of = np.searchsorted(group[order], np.arange(min(len(first), MEMORY_DEVICES_MAX)), side="right")
    parts = np.split(order, ends_of)[:-1]
    found = [_device(table, records, some, change[some], owned[some]) for some in parts]
    return sorted((one for one in found if one is not None), key=lambda one: one.order)


def _device(
    table: EventTable, records: AllocationRecords, places: Array, change: Array, owned: Array
) -> _DevicePeak | None:
    if not owned.any():
        return None
    running = np.cumsum(change)
    peak = int(np.argmax(running))
    at = int(places[peak])
    row = int(records.rows[at])
    kind, number = (int(table.column(name)[row]) for name in ("device_type", "device"))
    return _DevicePeak(kind, number, int(running[peak]), at, int(table.columns["start"][row]), places[owned])


def _named(devices: list[_DevicePeak], wanted: str) -> _DevicePeak:
    if not wanted:
        return devices[0]
    for one in devices:
        if one.name.casefold() == wanted.replace(":", " ").casefold():
            return one
    there = ", ".join(one.name for one in devices[:_NAMED_MAX])
    raise BadInput(f"nothing was allocated on {wanted[:100]!r} in this part of the trace; there are: {there}")


def _in_use(table: EventTable, row: int) -> int | None:
    """What the allocator itself counts then; None: not recorded, or there are several processes with one each."""
    known = table.column("process")[named(table, MEMORY_NAME)]
    total = int(table.column("total_allocated")[row])
    return None if total in (0, NO_END) or (known != known[0]).any() else total
