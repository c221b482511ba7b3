"""Key averages: one row per name and device type, as in torch.profiler or as recorded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np

from profd import _engine
from profd.derive.autograd import AUTOGRAD_COLUMNS, FLOW_CATEGORIES, Links, backward_times, find_links
from profd.derive.flops import flops_of_table
from profd.errors import BadInput
from profd.events import NO_ROW, DeviceType, EventTable, Kind, Tracks
from profd.events.table import Array
from profd.query import event_times, rules, view
from profd.query.apart import apart
from profd.query.estimates import Looks, looks_of
from profd.query.grouping import Labels, by_module, by_node, by_shapes, by_stack
from profd.query.part import Part, flows_within, of_job, read_part, rows_on
from profd.query.recorded import RECORDED_COLUMNS, recorded_calls, recorded_stretches
from profd.query.whole import whole
from profd.segments.reader import TraceReader

SORT_KEYS: Final = (
    "self_cpu_time_total",
    "cpu_time_total",
    "self_device_time_total",
    "device_time_total",
    "backward_time_total",
    "cpu_memory_usage",
    "self_cpu_memory_usage",
    "device_memory_usage",
    "self_device_memory_usage",
    "count",
    "flops",
    "name",
)
SORT_DEFAULT: Final = "self_cpu_time_total"
_INT64_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Average:
    """One row of `top`. Times in ns. The optional ones are None where nobody asked or nothing is known."""

    name: str
    device_type: str
    count: int
    cpu_time_total_ns: int
    self_cpu_time_total_ns: int
    device_time_total_ns: int
    self_device_time_total_ns: int
    input_shapes: str | None = None  # JSON, when grouped by it
    stack: list[str] | None = None  # innermost first, when grouped by it
    flops: int | None = None  # where the trace has shapes
    module: str | None = None  # path, when grouped by it; "" in no module
    backward_time_total_ns: int | None = None  # of the backward ops of the calls and all below them, when asked for
    cpu_memory_usage: int | None = None  # bytes allocated less freed; where the trace has allocations
    self_cpu_memory_usage: int | None = None
    device_memory_usage: int | None = None
    self_device_memory_usage: int | None = None
    node_id: int | None = None  # of a distributed job, where the trace tells nodes apart
    self_on_cpu_estimate_ns: int | None = None  # these five by looks at the thread (query/estimates.py)
    self_run_queue_estimate_ns: int | None = None
    self_gil_estimate_ns: int | None = None
    self_lock_estimate_ns: int | None = None
    self_off_cpu_estimate_ns: int | None = None  # for none of these reasons
    looks: int | None = None  # that they are of
    shadow: bool = False  # a device's range for an annotation: it spans work that has rows of its own
    annotation: bool = False  # torch keeps one apart from an op of its name
    top_level: bool = True  # no other event called the first of these calls

    def as_json(self) -> dict[str, Any]:
        """The row of `profctl top --json`."""
        return {field: getattr(self, field) for field in _JSON_FIELDS}

    @classmethod
    def json_fields(cls) -> tuple[str, ...]:
        """The keys of `as_json`."""
        return _JSON_FIELDS


_INTERNAL: Final = ("shadow", "annotation", "top_level")
_JSON_FIELDS: Final = tuple(field.name for field in fields(Average) if field.name not in _INTERNAL)


@dataclass(frozen=True, slots=True)
class Grouping:
    """The keys that make two calls the same, besides name and device type."""

    input_shape: bool = False
    stack_n: int = 0  # innermost frames
    module: bool = False
    nodes: tuple[int | None, ...] = ()  # of each thread track, where the trace tells nodes apart

    def columns(self) -> tuple[str, ...]:
        """Columns that the grouping reads."""
        stack = ("stack",) if self.stack_n > 0 or self.module else ()
        return (*stack, "module", "linked") if self.module else stack

    @property
    def by_context(self) -> bool:
        """Whether it needs to know what is around a call."""
        return self.stack_n > 0 or self.module


def averages_of_trace(
    reader: TraceReader, *, raw: bool, grouping: Grouping, with_backward: bool = False, part: Part | None = None
) -> list[Average]:
    """`averages` of a stored trace, or a part of it. Raw rows of a whole one are added up in bounded memory.

    Without `raw`, and where the part names no thread, those of profd are left out. Exhausted where the trace, or the
    part, is too large for what is asked.
    """
    part = part or Part()
    part = part if raw else of_job(reader, part)
    grouping = replace(grouping, nodes=nodes_of(reader.tracks))
    on_device = reader.meta.gpu_events != 0 or (not raw and reader.has("linked"))  # waiting for a device links, too
    timed = not on_device and reader.has("value")
    columns = columns_for(raw, grouping, on_device, allocates=not raw and reader.has("bytes"), timed=timed)
    looks = None if raw else looks_of(reader.meta, part.own)
    linked = with_backward or (grouping.by_context and not raw)
    if linked:
        columns = list(dict.fromkeys([*columns, "cat", *AUTOGRAD_COLUMNS]))
    if not part.is_whole:
        table = read_part(reader, part, [*columns, "correlation"])
        flows = flows_within(reader.flows(FLOW_CATEGORIES), table) if linked else None
        links = find_links(table, flows, reader.tracks) if linked else None
        return averages(table, raw=raw, grouping=grouping, links=links, with_backward=with_backward, looks=looks)
    if not raw or linked or grouping.by_context:
        table = whole(reader, columns)
        links = find_links(table, reader.flows(FLOW_CATEGORIES), reader.tracks) if linked else None
        own = None if raw or not part.own else rows_on(reader, part.own)
        calls = None if raw else view.torch_calls(table, partial(_are_correlations, reader), left_out=own)
        if calls is not None:
            calls.counted[apart(table, reader.meta)] = False
        return averages(
            table, raw=raw, grouping=grouping, links=links, with_backward=with_backward, calls=calls, looks=looks
        )
    stretches = recorded_stretches(reader.iterate(columns, args=False), len(reader))
    return _merge(_group(table, calls, True, grouping) for table, calls in stretches)


def _are_correlations(reader: TraceReader, rows: Array, ids: Array) -> bool:
    """`view.AreCorrelations` of a stored trace: the first rows tell, nearly always."""
    for table in reader.iterate(["correlation"], args=False):
        low, high = np.searchsorted(rows, (table.first_row, table.first_row + len(table)))
        if (ids[low:high] != table.column("correlation")[rows[low:high] - table.first_row]).any():
            return False
    return True


def nodes_of(tracks: Tracks) -> tuple[int | None, ...]:
    """The node of each thread track; empty where none says one."""
    nodes = tuple(track.get("node") for track in tracks.threads)
    return nodes if any(node is not None for node in nodes) else ()


def _merge(parts: Iterable[list[Average]]) -> list[Average]:
    merged: dict[tuple[object, ...], Average] = {}
    for row in chain.from_iterable(parts):
        key = (row.name, row.device_type, row.input_shapes, row.node_id)
        known = merged.get(key)
        merged[key] = row if known is None else summed(known, row)
    return list(merged.values())


def summed(first: Average, second: Average) -> Average:
    """A row of two parts of a trace: what is added up by parts, and the rest as the first has it."""
    flops = None if first.flops is None and second.flops is None else (first.flops or 0) + (second.flops or 0)
    return replace(
        first,
        count=first.count + second.count,
        cpu_time_total_ns=first.cpu_time_total_ns + second.cpu_time_total_ns,
        self_cpu_time_total_ns=first.self_cpu_time_total_ns + second.self_cpu_time_total_ns,
        device_time_total_ns=first.device_time_total_ns + second.device_time_total_ns,
        self_device_time_total_ns=first.self_device_time_total_ns + second.self_device_time_total_ns,
        flops=flops,
    )


def columns_for(
    raw: bool, grouping: Grouping, on_device: bool = True, allocates: bool = True, timed: bool = False
) -> list[str]:
    """Columns that `averages` needs of a table, which may have device rows or not, allocations, and CUDA events."""
    if raw:
        return [*RECORDED_COLUMNS, "inputs", *grouping.columns()]
    links = view.DEVICE_COLUMNS if on_device else ()
    memory = view.MEMORY_COLUMNS if allocates else ()
    times = event_times.COLUMNS if timed else ()
    return [*view.COLUMNS, *links, *memory, *times, "inputs", *grouping.columns()]


def averages(
    table: EventTable,
    *,
    raw: bool = False,
    grouping: Grouping | None = None,
    links: Links | None = None,
    with_backward: bool = False,
    calls: view.CallColumns | None = None,
    looks: Looks | None = None,
) -> list[Average]:
    """The rows of `top` for a whole trace, in order of first call.

    Without `raw` as torch.profiler's `key_averages()`: duplicate wrappers merged,
    utility ops left out, `ProfilerStep#n` one row, annotations apart from ops of
    their name, and with `links` calls of the backward pass under stack and module
    of their forward ops. With it every event counts as it was recorded, and device
    rows alone have device time. Functions that call themselves count once in
    totals, either way. `with_backward` needs `links`. `calls`: those of torch's view,
    where they are known. `looks`: at its threads; not with `raw`.
    """
    grouping = grouping or Grouping()
    backward = links if with_backward else None
    if not raw:
        rows = _group(table, calls or view.torch_calls(table), raw, grouping, links, backward, looks)
        return [row for row in rows if row.count]
    if grouping.by_context or with_backward:
        return _group(table, recorded_calls(table), raw, grouping, None, backward)
    return _merge(_group(part, calls, raw, grouping) for part, calls in recorded_stretches([table], len(table)))


def _group(
    table: EventTable,
    calls: view.CallColumns,
    raw: bool,
    grouping: Grouping,
    links: Links | None = None,
    backward: Links | None = None,
    looks: Looks | None = None,
) -> list[Average]:
    if not len(table):
        return []
    shapes = by_shapes(table) if grouping.input_shape else None
    stacks = by_stack(table, grouping.stack_n, calls.parent, links) if grouping.stack_n > 0 else None
    modules = by_module(table, calls.parent, links) if grouping.module else None
    nodes = by_node(table, grouping.nodes) if grouping.nodes else None
    labelled = _label_keys([labels for labels in (shapes, stacks, modules, nodes) if labels])
    keys = [*_keys(table, calls, raw), *labelled]
    values = _values(calls, backward)
    _count_recursion_once(table, calls, labelled, values)
    group, first, count, summed = _engine.sum_groups(keys, calls.counted.view(np.uint8), list(values.values()))
    sums = dict(zip(values, summed, strict=True))
    device, kind = calls.device_type[first], table.column("kind")[first]
    shadow, annotation = kind == Kind.GPU_USER_ANNOTATION, rules.is_annotation(kind)
    flops = flops_of_table(table, group, len(first), calls.counted.view(np.uint8))
    estimated: dict[str, list[Any]] = dict(looks.spent(table, calls, group, len(first))) if looks else {}
    return [
        Average(
            name=calls.names[calls.name[at]] if calls.name[at] >= 0 else "",
            device_type=DEVICE_LABELS.get(int(device[number]), "other"),
            count=int(count[number]),
            input_shapes=_label(shapes, at),
            stack=_frames(stacks, at),
            module=_label(modules, at),
            node_id=int(node) if (node := _label(nodes, at)) else None,
            flops=None if flops is None else int_flops(flops[number]),
            shadow=bool(shadow[number]),
            annotation=not raw and bool(annotation[number]),
            top_level=bool(calls.parent[at] == NO_ROW),
            **{field: int(values[number]) for field, values in sums.items()},
            **{field: values[number] for field, values in estimated.items()},
        )
        for number, at in enumerate(first)
    ]


_PLACES: Final = 256  # device types that a damaged file can name
_ANNOTATION: Final = np.array([rules.is_annotation(np.arange(256))], dtype=np.uint8)[0]


def _keys(table: EventTable, calls: view.CallColumns, raw: bool) -> list[tuple[Array, int]]:
    """Columns by which calls are told apart, and how many values each may have."""
    keys = [
        (np.ascontiguousarray(calls.name), len(calls.names) + 1),
        (np.ascontiguousarray(calls.device_type), _PLACES),
    ]
    if not raw:
        # Torch keeps an annotation apart from an op of the same name.
        keys.append((_engine.allowed([(np.ascontiguousarray(table.column("kind")), _ANNOTATION)]), 2))
    return keys


def _label_keys(labels: list[Labels]) -> list[tuple[Array, int]]:
    """The labels as one column: the numbers of several may be too many to multiply."""
    if len(labels) < 2:
        return [(of_all.code, len(of_all.texts)) for of_all in labels]
    group, first = _engine.group_rows([of_all.code for of_all in labels])
    return [(group, len(first))]


def _values(calls: view.CallColumns, backward: Links | None) -> dict[str, Array]:
    """Field of Average -> its value for each row."""
    values = {
        "cpu_time_total_ns": calls.cpu,
        "self_cpu_time_total_ns": calls.self_cpu,
        "device_time_total_ns": calls.device,
        "self_device_time_total_ns": calls.self_device,
    }
    if backward is not None:
        own = backward_times(backward, calls.parent, calls.cpu)
        total = _engine.subtree_sums(own, calls.parent)
        total[~calls.counted] = 0
        values["backward_time_total_ns"] = total
    if calls.memory is not None:
        values |= {
            "cpu_memory_usage": calls.memory.cpu,
            "self_cpu_memory_usage": calls.memory.self_cpu,
            "device_memory_usage": calls.memory.device,
            "self_device_memory_usage": calls.memory.self_device,
        }
    return values


_WITH_ALL_BELOW: Final = (
    *("cpu_time_total_ns", "device_time_total_ns", "backward_time_total_ns"),
    *("cpu_memory_usage", "device_memory_usage"),
)


def _count_recursion_once(
    table: EventTable, calls: view.CallColumns, labelled: list[tuple[Array, int]], values: dict[str, Array]
) -> None:
    """Leave in the totals of functions what their outermost calls have, as cProfile does.

    The time of a call within a call of the same row is in the outer call's total already. Operators and ranges are
    torch's: there every call counts.
    """
    functions = rules.is_kind(table.column("kind"), *rules.FUNCTIONS)
    if not functions.any():
        return
    group, groups = np.ascontiguousarray(calls.name, dtype=np.int64) + 1, len(calls.names) + 1
    if labelled:
        group, first = _engine.group_rows([group, *(np.ascontiguousarray(code, np.int64) for code, _ in labelled)])
        groups = len(first)
    outermost = _engine.outermost(group, groups, functions.view(np.uint8), np.ascontiguousarray(calls.parent))
    within = np.flatnonzero(outermost == 0)
    for field in _WITH_ALL_BELOW if len(within) else ():
        if field in values:
            values[field] = values[field].copy()
            values[field][within] = 0


DEVICE_LABELS: Final = {int(device): device.label for device in DeviceType}


def _label(labels: Labels | None, row: int) -> str | None:
    return None if labels is None else labels.texts[int(labels.code[row])]


def _frames(labels: Labels | None, row: int) -> list[str] | None:
    if labels is None:
        return None
    text = labels.texts[int(labels.code[row])]
    return text.split(";") if text else []


def int_flops(flops: float) -> int:
    """As an integer of 64 bits, the largest one where there are more."""
    return min(int(flops), _INT64_MAX)


def sort_averages(rows: list[Average], key: str) -> list[Average]:
    """Rows by one of SORT_KEYS: numbers from the largest, names from A. BadInput lists the keys."""
    if key not in SORT_KEYS:
        raise BadInput(f"cannot sort by {key!r}; sort by one of: {', '.join(SORT_KEYS)}")
    if key == "name":
        return sorted(rows, key=lambda row: (row.name, row.device_type))
    field = sort_field(key)
    return sorted(rows, key=lambda row: (-(getattr(row, field) or 0), row.name, row.device_type))


def sort_field(key: str) -> str:
    """The field of Average that a key of SORT_KEYS sorts by."""
    return f"{key}_ns" if key.endswith("_time_total") else key
