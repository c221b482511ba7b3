"""What the devices of a trace did: `profctl gpu` (docs/json.md has every key)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from profd.events import NO_END, DeviceType, Kind
from profd.events.table import Array
from profd.query.averages import Grouping, averages_of_trace
from profd.query.device_metrics import metrics_of_trace
from profd.query.device_work import DeviceWork, device_work
from profd.query.devices import DEVICES_MAX
from profd.query.intervals import Sweep, merged
from profd.store.reader import TraceReader

STREAMS_MAX: Final = 1024  # shown; work on further ones counts for its device alone
OPS_SHOWN: Final = 10
NO_WORK: Final = (
    "no device work is in the trace. `profctl doctor` says whether GPU events can be recorded here; "
    "what this capture could not do stands in `profctl show`."
)
_LABELS: Final = {int(device): device.label for device in DeviceType}


@dataclass(frozen=True, slots=True)
class Delays:
    """From the begin of a launch to the begin of what it launched. None: no launch is known."""

    launch_delay_p50_ns: int | None
    launch_delay_p95_ns: int | None
    launch_delay_max_ns: int | None


@dataclass(frozen=True, slots=True)
class Device:
    """One device over the recorded window. Times in ns."""

    device_type: str
    device: int | None  # None where the trace does not number it
    busy_ns: int  # at least one kernel, copy or fill ran
    idle_ns: int
    busy_share: float | None  # None for a window of no length
    overlap_ns: int  # on two streams or more at a time
    kernel_ns: int  # at least one kernel ran
    copy_ns: int  # at least one copy or fill ran
    exposed_copy_ns: int  # of it, without any kernel
    idle_waiting_ns: int  # idle although something was launched and had not begun
    idle_empty_ns: int  # idle with nothing launched: the host was late
    launch_delay_p50_ns: int | None
    launch_delay_p95_ns: int | None
    launch_delay_max_ns: int | None


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream over the recorded window. Times in ns."""

    device_type: str
    device: int | None
    stream: int | None
    kernels: int
    copies: int
    fills: int
    busy_ns: int
    idle_ns: int
    busy_share: float | None
    overlap_ns: int  # of busy, while another stream of the device was busy, too
    queue_max: int  # most kernels, copies and fills that were launched and had not begun
    queue_mean: float | None  # over the window; None for a window of no length
    launch_delay_p50_ns: int | None
    launch_delay_p95_ns: int | None
    launch_delay_max_ns: int | None


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies or fills of one name (the direction is in it) on one device."""

    device_type: str
    device: int | None
    name: str
    count: int
    bytes: int | None  # None where no row says
    duration_ns: int  # added up, of those whose bytes are known where any are
    bytes_per_second: float | None  # bytes by duration
    largest_bytes: int | None


@dataclass(frozen=True, slots=True)
class Links:
    """How much device work has found the call that launched it."""

    device_events: int
    linked: int
    stated: int  # a call with the same correlation id is in the trace, or they are linked otherwise
    share: float | None  # linked of stated; None where nothing is stated


def gpu_of_trace(reader: TraceReader) -> dict[str, Any]:
    """`profctl gpu --json`. Exhausted for a trace too large to be held at once."""
    meta = reader.meta
    window = 0 if meta.start_ns is None or meta.end_ns is None else meta.end_ns - meta.start_ns
    work = device_work(reader)
    devices, streams, left_out = _places(work, window)
    return {
        "window_ns": window,
        "message": None if len(work) else NO_WORK,
        "devices": [asdict(device) for device in devices],
        "streams": [asdict(stream) for stream in streams],
        "streams_left_out": left_out,
        "copies": [asdict(copies) for copies in _copies(work)],
        "ops": _ops(reader) if len(work) else [],
        "links": asdict(_links(work)),
        "metrics": [asdict(metric) for metric in metrics_of_trace(reader)],
    }


def _places(work: DeviceWork, window: int) -> tuple[list[Device], list[Stream], int]:
    devices: list[Device] = []
    streams: list[Stream] = []
    left_out = 0
    for (place, number), rows in _groups(work.device_type, work.device):
        if len(devices) == DEVICES_MAX:
            break
        lanes = [(int(stream), rows[inner]) for (stream,), inner in _groups(work.stream[rows])]
        spans = [merged(work.start[lane], work.end[lane]) for _, lane in lanes]
        sweep = Sweep(
            (np.concatenate([start for start, _ in spans]), np.concatenate([end for _, end in spans])),
            (work.launch[rows], work.start[rows]),
        )
        label, known = _LABELS.get(int(place), "other"), _known(number)
        devices.append(_device(work, rows, sweep, label, known, window))
        shown = lanes[: STREAMS_MAX - len(streams)]
        left_out += len(lanes) - len(shown)
        crowded = sweep.opened[0] > 1
        for (stream, lane), (start, end) in zip(shown, spans, strict=False):
            overlap = sweep.within(crowded, start, end)
            busy = int((end - start).sum())
            streams.append(_stream(work, lane, (label, known, _known(stream)), (busy, overlap, window)))
    return devices, streams, left_out


def _device(work: DeviceWork, rows: Array, sweep: Sweep, label: str, number: int | None, window: int) -> Device:
    running, waiting = sweep.opened
    busy = sweep.total(running > 0)
    idle_waiting = sweep.total((running == 0) & (waiting > 0))
    idle = max(window - busy, 0)
    kernel = work.kind[rows] == Kind.KERNEL
    kernel_ns, copy_ns = _covered(work, rows[kernel]), _covered(work, rows[~kernel])
    return Device(
        device_type=label,
        device=number,
        busy_ns=busy,
        idle_ns=idle,
        busy_share=_share(busy, window),
        overlap_ns=sweep.total(running > 1),
        kernel_ns=kernel_ns,
        copy_ns=copy_ns,
        exposed_copy_ns=busy - kernel_ns,
        idle_waiting_ns=idle_waiting,
        idle_empty_ns=max(idle - idle_waiting, 0),
        **asdict(_delays(work, rows)),
    )


def _covered(work: DeviceWork, rows: Array) -> int:
    start, end = merged(work.start[rows], work.end[rows])
    return int((end - start).sum())


def _stream(
    work: DeviceWork, rows: Array, place: tuple[str, int | None, int | None], times: tuple[int, int, int]
) -> Stream:
    busy, overlap, window = times
    kinds = work.kind[rows]
    waited = work.start[rows] - work.launch[rows]
    queue = Sweep((work.launch[rows], work.start[rows])).opened[0]
    return Stream(
        *place,
        kernels=int((kinds == Kind.KERNEL).sum()),
        copies=int((kinds == Kind.MEMCPY).sum()),
        fills=int((kinds == Kind.MEMSET).sum()),
        busy_ns=busy,
        idle_ns=max(window - busy, 0),
        busy_share=_share(busy, window),
        overlap_ns=overlap,
        queue_max=int(queue.max()),
        queue_mean=_share(int(waited.sum()), window),
        **asdict(_delays(work, rows)),
    )


def _delays(work: DeviceWork, rows: Array) -> Delays:
    rows = rows[work.linked[rows]]
    if not len(rows):
        return Delays(None, None, None)
    delays = np.sort(work.start[rows] - work.launch[rows])
    # The smallest that at least this share of them does not exceed, as everywhere in summaries.
    half, most = (int(delays[max(int(np.ceil(share * len(delays))) - 1, 0)]) for share in (0.5, 0.95))
    return Delays(half, most, int(delays[-1]))


def _copies(work: DeviceWork) -> list[Copies]:
    chosen = np.flatnonzero(work.kind != Kind.KERNEL)
    found = []
    for (place, number, name), inner in _groups(work.device_type[chosen], work.device[chosen], work.name[chosen]):
        rows = chosen[inner]
        sized = rows[(work.bytes[rows] != NO_END) & (work.bytes[rows] >= 0)]
        timed = sized if len(sized) else rows
        lasting = int((work.end[timed] - work.start[timed]).sum())
        moved = int(work.bytes[sized].sum()) if len(sized) else None
        found.append(
            Copies(
                device_type=_LABELS.get(int(place), "other"),
                device=_known(number),
                name=work.names.values[name] if name >= 0 else "",
                count=len(rows),
                bytes=moved,
                duration_ns=lasting,
                bytes_per_second=moved * 1e9 / lasting if moved is not None and lasting else None,
                largest_bytes=int(work.bytes[sized].max()) if len(sized) else None,
            )
        )
        if len(found) == STREAMS_MAX:
            break
    return sorted(found, key=lambda copies: -copies.duration_ns)


def _links(work: DeviceWork) -> Links:
    linked, stated = int(work.linked.sum()), int((work.called | work.linked).sum())
    return Links(len(work), linked, stated, linked / stated if stated else None)


def _ops(reader: TraceReader) -> list[dict[str, Any]]:
    """The operators that launched most device work themselves, as `profctl top` counts it."""
    rows = averages_of_trace(reader, raw=False, grouping=Grouping())
    cpu = DeviceType.CPU.label
    launching = [row for row in rows if row.device_type == cpu and row.self_device_time_total_ns > 0]
    launching.sort(key=lambda row: (-row.self_device_time_total_ns, row.name))
    keys = ("name", "count", "self_device_time_total_ns", "device_time_total_ns")
    return [{key: getattr(row, key) for key in keys} for row in launching[:OPS_SHOWN]]


def _groups(*keys: Array) -> Iterator[tuple[tuple[int, ...], Array]]:
    """(the values, the rows that have them, ascending) for each combination of values, in order."""
    if not len(keys[0]):
        return
    order = np.lexsort(keys[::-1])
    changes = np.zeros(len(order) - 1, dtype=bool)
    for key in keys:
        changes |= key[order][1:] != key[order][:-1]
    for rows in np.split(order, np.flatnonzero(changes) + 1):
        yield tuple(int(key[rows[0]]) for key in keys), rows


def _known(number: int) -> int | None:
    return None if number == NO_END else int(number)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole > 0 else None
