"""The work of a trace's devices: `profctl gpu` (docs/json.md has every key)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from profd import limits
from profd.errors import Exhausted
from profd.events import NO_END, DeviceType, Kind
from profd.events.table import Array
from profd.query.averages import Average, Grouping, averages_of_trace
from profd.query.captured import Member, opened
from profd.query.device_metrics import metrics_of_trace
from profd.query.device_work import DeviceWork, device_work
from profd.query.devices import DEVICES_MAX, union
from profd.query.intervals import Ordered, Sweep, merged, windows
from profd.query.launching_ops import launching_ops
from profd.query.partition import Partition
from profd.segments.reader import TraceReader
from profd.segments.rollups import kept_value

STREAMS_MAX: Final = 1024  # shown; further ones count for their device, as one stream
COPIES_MAX: Final = 1024  # names on devices that are shown, those that took longest
OPS_SHOWN: Final = 10
SWEEP_ROWS: Final = 1 << 20  # launches, and begins of work, that are swept at once
NO_WORK: Final = (
    "no device work is in the trace. `profctl doctor` says whether GPU events can be recorded here; "
    "what this capture could not do stands in `profctl show`."
)
_NOT_TOLD: Final = "which operators launched most is not told, because {}: `profctl top --step N` has it of a step"
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


def gpu_of_trace(source: TraceReader | Member) -> dict[str, Any]:
    """`profctl gpu --json`, as it was kept, or worked out. Exhausted where there is too much work for a worker."""
    return kept_value(source.rollups, "gpu", _is_answer, lambda: _worked_out(opened(source)))


_LISTS: Final = ("devices", "streams", "copies", "ops", "metrics")
_COUNTS: Final = ("window_ns", "streams_left_out", "copies_left_out")


def _is_answer(kept: Any) -> bool:
    """As far as others count on it."""
    return (
        isinstance(kept, dict)
        and kept.keys() - {"ops_message"} == {"message", *_COUNTS, *_LISTS, "links"}
        and all(isinstance(kept[name], list) and all(isinstance(row, dict) for row in kept[name]) for name in _LISTS)
        and all(type(kept[name]) is int for name in _COUNTS)
        and isinstance(kept["links"], dict)
        and all(type(kept["links"].get(name)) is int for name in ("device_events", "linked", "stated"))
    )


def _worked_out(reader: TraceReader) -> dict[str, Any]:
    meta = reader.meta
    window = 0 if meta.start_ns is None or meta.end_ns is None else meta.end_ns - meta.start_ns
    work = device_work(reader)
    devices, streams, left_out = _places(work, window)
    copies, copies_left_out = _copies(work)
    return {
        "window_ns": window,
        "message": None if len(work) else NO_WORK,
        "devices": [asdict(device) for device in devices],
        "streams": [asdict(stream) for stream in streams],
        "streams_left_out": left_out,
        "copies": [asdict(one) for one in copies],
        "copies_left_out": copies_left_out,
        **_ops_told(reader, len(work)),
        "links": asdict(_links(work)),
        "metrics": [asdict(metric) for metric in metrics_of_trace(reader)],
    }


def _places(work: DeviceWork, window: int) -> tuple[list[Device], list[Stream], int]:
    devices: list[Device] = []
    streams: list[Stream] = []
    left_out = 0
    places = Partition(work.device_type, work.device)
    for part in range(min(len(places), DEVICES_MAX)):
        (place, number), rows = places.values(part), places.of(part)
        lanes = Partition(work.stream[rows])
        shown = min(len(lanes), STREAMS_MAX - len(streams))
        left_out += len(lanes) - shown
        of_lanes = [rows[lanes.of(lane)] for lane in range(shown)]
        spans = [merged(work.start[lane], work.end[lane]) for lane in (*of_lanes, rows[lanes.after(shown)])]
        swept = _swept(work, rows, spans)
        label, known = _LABELS.get(place, "other"), _known(number)
        devices.append(_device(work, rows, swept, label, known, window))
        for lane, of_lane in enumerate(of_lanes):
            start, end = spans[lane]
            times = (int((end - start).sum()), swept.crowded[lane], window)
            streams.append(_stream(work, of_lane, (label, known, _known(*lanes.values(lane))), times))
    return devices, streams, left_out


@dataclass(slots=True)
class _Swept:
    """What a device did when, added up. Times in ns."""

    busy: int = 0
    overlap: int = 0  # two streams or more worked
    idle_waiting: int = 0
    crowded: list[int] = field(default_factory=list)  # of each stream: it worked, and another one


def _swept(work: DeviceWork, rows: Array, spans: list[tuple[Array, Array]]) -> _Swept:
    """Of a device, a window at a time. `spans`: of each of its streams when that was busy."""
    found = _Swept(crowded=[0] * len(spans))
    lanes = [Ordered(*span) for span in spans]
    launch, start = work.launch[rows], work.start[rows]
    queue = Ordered(launch, start)
    last = np.sort(np.concatenate([end[-1:] for _, end in spans]))[-1:]
    for edges in windows(SWEEP_ROWS, np.sort(launch), start, last):
        cut = [lane.within(*edges) for lane in lanes]
        running = (np.concatenate([start for start, _ in cut]), np.concatenate([end for _, end in cut]))
        sweep = Sweep.of_window(edges, running, queue.within(*edges))
        busy, waiting = sweep.opened
        crowded = busy > 1
        found.busy += sweep.total(busy > 0)
        found.overlap += sweep.total(crowded)
        found.idle_waiting += sweep.total((busy == 0) & (waiting > 0))
        for lane, (start_of, end_of) in enumerate(cut):
            found.crowded[lane] += sweep.within(crowded, start_of, end_of)
    return found


def _queue_max(launch: Array, start: Array) -> int:
    """The most that were launched and had not begun."""
    queue = Ordered(launch, start)
    sweeps = (Sweep.of_window(one, queue.within(*one)) for one in windows(SWEEP_ROWS, np.sort(launch), start))
    return max((int(sweep.opened[0].max()) for sweep in sweeps), default=0)


def _device(work: DeviceWork, rows: Array, swept: _Swept, label: str, number: int | None, window: int) -> Device:
    idle = max(window - swept.busy, 0)
    kernel = work.kind[rows] == Kind.KERNEL
    kernel_ns, copy_ns = _covered(work, rows[kernel]), _covered(work, rows[~kernel])
    return Device(
        device_type=label,
        device=number,
        busy_ns=swept.busy,
        idle_ns=idle,
        busy_share=_share(swept.busy, window),
        overlap_ns=swept.overlap,
        kernel_ns=kernel_ns,
        copy_ns=copy_ns,
        exposed_copy_ns=swept.busy - kernel_ns,
        idle_waiting_ns=swept.idle_waiting,
        idle_empty_ns=max(idle - swept.idle_waiting, 0),
        **asdict(_delays(work, rows)),
    )


def _covered(work: DeviceWork, rows: Array) -> int:
    """How long at least one of these, which are in start order, ran."""
    covered: tuple[int, int] | None = None
    for first in range(0, len(rows), SWEEP_ROWS):
        some = rows[first : first + SWEEP_ROWS]
        covered = union(work.start[some], work.end[some], covered)
    return 0 if covered is None else covered[0]


def _stream(
    work: DeviceWork, rows: Array, place: tuple[str, int | None, int | None], times: tuple[int, int, int]
) -> Stream:
    busy, overlap, window = times
    kinds = work.kind[rows]
    waited = work.start[rows] - work.launch[rows]
    return Stream(
        *place,
        kernels=int((kinds == Kind.KERNEL).sum()),
        copies=int((kinds == Kind.MEMCPY).sum()),
        fills=int((kinds == Kind.MEMSET).sum()),
        busy_ns=busy,
        idle_ns=max(window - busy, 0),
        busy_share=_share(busy, window),
        overlap_ns=overlap,
        queue_max=_queue_max(work.launch[rows], work.start[rows]),
        queue_mean=_share(_sum(waited), window),
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


def _copies(work: DeviceWork) -> tuple[list[Copies], int]:
    """Copies that took longest first, and the number of further ones."""
    chosen = np.flatnonzero(work.kind != Kind.KERNEL)
    kinds = Partition(work.device_type[chosen], work.device[chosen], work.name[chosen])
    if not len(kinds):
        return [], 0
    lasting = (work.end[chosen] - work.start[chosen]).astype(np.float64)
    longest = np.argsort(-np.add.reduceat(lasting[kinds.rows], kinds.starts), kind="stable")[:COPIES_MAX]
    found = [_copies_of(work, chosen[kinds.of(part)], kinds.values(part)) for part in longest.tolist()]
    return sorted(found, key=lambda copies: -copies.duration_ns), len(kinds) - len(found)


def _copies_of(work: DeviceWork, rows: Array, values: tuple[int, ...]) -> Copies:
    place, number, name = values
    sized = rows[(work.bytes[rows] != NO_END) & (work.bytes[rows] >= 0)]
    timed = sized if len(sized) else rows
    lasting = _sum(work.end[timed] - work.start[timed])
    moved = _sum(work.bytes[sized]) if len(sized) else None
    return Copies(
        device_type=_LABELS.get(place, "other"),
        device=_known(number),
        name=work.names.values[name] if name >= 0 else "",
        count=len(rows),
        bytes=moved,
        duration_ns=lasting,
        bytes_per_second=moved * 1e9 / lasting if moved is not None and lasting else None,
        largest_bytes=int(work.bytes[sized].max()) if len(sized) else None,
    )


def _links(work: DeviceWork) -> Links:
    linked, stated = int(work.linked.sum()), int(work.stated.sum())
    return Links(len(work), linked, stated, linked / stated if stated else None)


def _ops_told(reader: TraceReader, work: int) -> dict[str, Any]:
    """Whose device time is whose: of a large trace in passes of its own over all events."""
    if not work:
        return {"ops": []}
    try:
        large = len(reader) > limits.QUERY_ROWS_MAX
        return {
            "ops": _ops(launching_ops(reader) if large else averages_of_trace(reader, raw=False, grouping=Grouping()))
        }
    except Exhausted as error:
        return {"ops": [], "ops_message": _NOT_TOLD.format(error)}


def _ops(rows: list[Average]) -> list[dict[str, Any]]:
    """The operators that launched most device work themselves, as `profctl top` counts it."""
    cpu = DeviceType.CPU.label
    launching = [row for row in rows if row.device_type == cpu and row.self_device_time_total_ns > 0]
    launching.sort(key=lambda row: (-row.self_device_time_total_ns, row.name, row.annotation, row.count))
    keys = ("name", "count", "self_device_time_total_ns", "device_time_total_ns")
    return [{key: getattr(row, key) for key in keys} for row in launching[:OPS_SHOWN]]


def _sum(values: Array) -> int:
    """Of numbers that no file vouches for: it does not go around."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFF_FFFF).sum())


def _known(number: int) -> int | None:
    return None if number == NO_END else int(number)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole > 0 else None
