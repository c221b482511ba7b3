"""How busy the devices were, and what it means when they left no records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.events import NO_END, DeviceType, EventTable, Kind
from profd.events.table import Array
from profd.model.shortfall import missing_gpu_records
from profd.query import rules
from profd.query.view import durations

BUSY_COLUMNS = ("start", "end", "kind", "device_type", "device")
DEVICES_MAX: Final = 1024  # of one trace; more are made up
# A range that shadows an annotation, or a wait, occupies no execution unit.
DEVICE_WORK: Final = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
_DEVICE_LABELS = {int(device): device.label for device in DeviceType}


@dataclass(frozen=True, slots=True)
class Busy:
    """A device over the recorded window; `device` None where the trace does not number it."""

    device_type: str
    device: int | None
    busy_ns: int
    idle_ns: int
    busy_share: float | None  # None for a window of no length


class BusyClock:
    """Union of device intervals per device, fed with tables in start order."""

    def __init__(self) -> None:
        self._devices: dict[tuple[int, int], tuple[int, int]] = {}  # -> (busy ns, busy until)

    def add(self, table: EventTable) -> None:
        """Take in the device work of the next stretch of the trace."""
        work = rules.is_kind(table.column("kind"), *DEVICE_WORK) & ~rules.is_cpu(table.column("device_type"))
        rows = np.flatnonzero(work)
        if not len(rows):
            return
        start = table.columns["start"][rows]
        end = start + durations(table)[rows]
        place, device = table.column("device_type")[rows], table.column("device")[rows]
        order = np.lexsort((device, place))  # stable: in start order within a device
        place, device, start, end = place[order], device[order], start[order], end[order]
        cuts = np.flatnonzero((place[1:] != place[:-1]) | (device[1:] != device[:-1])) + 1
        for first, last in zip([0, *cuts.tolist()], [*cuts.tolist(), len(rows)], strict=True):
            key = (int(place[first]), int(device[first]))
            if key in self._devices or len(self._devices) < DEVICES_MAX:
                self._devices[key] = union(start[first:last], end[first:last], self._devices.get(key))

    def busy(self, window_ns: int) -> list[Busy]:
        """Each device with work in it, in order; `window_ns` is the length of what was recorded."""
        found = []
        for (place, device), (busy, _) in sorted(self._devices.items()):
            idle = max(window_ns - busy, 0)
            share = busy / window_ns if window_ns > 0 else None
            number = None if device == NO_END else device
            found.append(Busy(_DEVICE_LABELS.get(place, "other"), number, busy, idle, share))
        return found


def union(start: Array, end: Array, before: tuple[int, int] | None) -> tuple[int, int]:
    """(total length of the union, its last end) of intervals in start order, one at least, after those of `before`."""
    busy, until = before if before is not None else (0, int(start[0]))
    reached = np.maximum.accumulate(np.maximum(end, until))
    previous = np.concatenate([[until], reached[:-1]])
    gain = np.maximum(reached - np.maximum(start, previous), 0)
    return busy + int(gain.sum()), int(reached[-1])


@dataclass(frozen=True, slots=True)
class EventCounts:
    """The device's side of a trace."""

    launches: int = 0  # runtime and driver calls that start work on a device
    device_events: int = 0  # kernels, copies, fills


_LAUNCHES = ("LaunchKernel", "MemcpyAsync", "MemsetAsync", "GraphLaunch", "LaunchCooperative")


def is_launch_name(name: str) -> bool:
    """Whether a runtime or driver call of this name starts work on a device."""
    return any(word in name for word in _LAUNCHES)


class EventCounter:
    """Counts launches and device work, fed with tables that have `name` and `kind`."""

    def __init__(self) -> None:
        self._launches = rules.Named(is_launch_name)
        self.counts = EventCounts()

    def add(self, table: EventTable) -> None:
        """Take in the next stretch of the trace."""
        kinds = table.column("kind")
        calls = rules.is_kind(kinds, Kind.RUNTIME, Kind.DRIVER) & self._launches.of(table)
        self.counts = EventCounts(
            launches=self.counts.launches + int(calls.sum()),
            device_events=self.counts.device_events + int(rules.is_kind(kinds, *DEVICE_WORK).sum()),
        )


def gpu_shortfall(counts: EventCounts) -> str | None:
    """Why a trace with launches and no device records is not whole, as a sentence; None when it has what it should."""
    if counts.device_events or not counts.launches:
        return None
    return missing_gpu_records(counts.launches)
