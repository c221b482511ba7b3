"""The calls that torch.profiler's tables would show, from the events of a trace.

What torch does with objects (`_parse_kineto_results`, `EventList._build_tree`)
is done here with columns: utility ops and marks left out, CPU calls nested per
thread by interval, wrappers that only call an op of their own name merged with
it, device time attributed to the op that launched it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profd import _engine
from profd.derive.ancestors import nearest
from profd.derive.memory import MEMORY_NAME, OUT_OF_MEMORY_NAME, own_usage, usage_within
from profd.events import NO_END, NO_ROW, DeviceType, EventTable, Kind
from profd.events.table import Array
from profd.query import rules

COLUMNS = ("name", "kind", *rules.ASYNC_COLUMNS, "start", "end", "thread", "device_type")
# Read in addition where there are allocations.
MEMORY_COLUMNS = ("process", "bytes")
# Read in addition where a device left records.
DEVICE_COLUMNS = ("correlation", "external", "linked")


@dataclass(slots=True)
class Calls:
    """The rows of a table as calls to be grouped; arrays are as long as the table. Times in ns."""

    uncounted: Array  # rows that are no calls; their times still add up
    device_type: Array
    name: Array  # index of `names`, or NO_CODE
    names: list[str]
    cpu: Array
    self_cpu: Array
    device: Array
    self_device: Array
    parent: Array  # row of the innermost call around it on its thread, or NO_ROW
    memory: Memory | None = None  # None: the trace has no allocations


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes allocated less freed while each row was open, and of these what no call within it accounts for."""

    cpu: Array
    self_cpu: Array
    device: Array
    self_device: Array


def durations(table: EventTable) -> Array:
    """Duration of each row in ns; 0 where no end was seen or it lies before the start."""
    start, end = table.columns["start"], table.column("end")
    known = (end != NO_END) & (end > start)
    lasting = np.zeros(len(table), dtype=np.int64)
    np.subtract(end, start, out=lasting, where=known)
    # Ends and starts may be the extremes of an int64; a duration stays one that fits.
    lasting[lasting < 0] = np.iinfo(np.int64).max
    return lasting


def torch_calls(table: EventTable) -> Calls:
    """The calls of a whole trace (rows in start order, `first_row` 0); rows that torch does not show have no times."""
    # Arrays of a million rows cost more to allocate than to fill: they are reused where they can be.
    kinds, device_type = table.column("kind"), table.column("device_type")
    cpu = rules.is_cpu(device_type)
    names, name = rules.shown_names(rules.names_of(table), table.column("name"))
    shown = rules.is_work(kinds) & ~rules.is_named(table, rules.UTILITY_OPS)

    lasting = durations(table)
    nested = shown & cpu & ~rules.is_kind(kinds, Kind.OVERHEAD)
    waiting = nested & rules.is_async(table)
    nested &= ~waiting
    on_device = shown & ~cpu
    marks = _lonely_memory(table, lasting, shown & cpu)

    parent, self_cpu, crossed = nest_and_count(table, nested)
    launched = _device_time(table, lasting, nested, on_device, None if crossed else parent)
    dropped = _merge_wrappers(name, parent, lasting, self_cpu, launched)
    device = _engine.subtree_sums(launched, parent) if launched.any() else launched

    memory = _memory(table, shown & cpu & ~dropped, marks, parent, dropped, lasting)

    self_cpu[np.flatnonzero(on_device | waiting | marks)] = 0
    work = np.flatnonzero(on_device)
    device[work] = launched[work] = lasting[work]
    lasting[work] = 0
    hidden = np.flatnonzero(~((shown & ~dropped) | marks))
    for times in (lasting, self_cpu, device, launched):
        times[hidden] = 0
    if marks.any():
        device_type = np.where(marks, np.uint8(DeviceType.CPU), device_type)
    return Calls(hidden, device_type, name, names, lasting, self_cpu, device, launched, parent, memory)


def nest(table: EventTable, include: Array) -> tuple[Array, Array]:
    """(parent row or NO_ROW, self time in ns) by strict interval nesting of the included rows of each thread."""
    return nest_and_count(table, include)[:2]


def nest_and_count(table: EventTable, include: Array) -> tuple[Array, Array, int]:
    """`nest`, and how many partial overlaps there were."""
    return _engine.nest(
        np.ascontiguousarray(table.columns["start"], dtype=np.int64),
        np.ascontiguousarray(table.column("end"), dtype=np.int64),
        np.ascontiguousarray(table.column("thread"), dtype=np.int32),
        include.view(np.uint8),
    )


def _merge_wrappers(name: Array, parent: Array, lasting: Array, self_cpu: Array, launched: Array) -> Array:
    """Drop every call that is the only child of a call of its own name; returns which.

    The wrapper takes over the children and, as in torch, the kernels of the
    innermost call it wraps: what it launched itself is not counted.
    """
    dropped = np.zeros(len(name), dtype=bool)
    nested = parent != NO_ROW
    inner = np.flatnonzero(nested & (name == name[parent])) if len(name) else np.zeros(0, dtype=np.int64)
    if not len(inner):
        return dropped
    above = parent[inner]
    wraps = np.zeros(len(name), dtype=bool)
    wraps[above] = True
    siblings = np.bincount(parent[np.flatnonzero(nested & wraps[parent])], minlength=len(name))
    alone = siblings[above] == 1
    inner, above = inner[alone], above[alone]
    dropped[inner] = True
    # Chains collapse into their top, and what is below the innermost becomes what is below the top.
    innermost = ~np.isin(inner, above)
    last, top = inner[innermost], above[innermost].copy()
    climbing = np.flatnonzero(dropped[top])
    while len(climbing):
        top[climbing] = parent[top[climbing]]
        climbing = climbing[dropped[top[climbing]]]
    self_cpu[top] = lasting[top] - (lasting[last] - self_cpu[last])
    launched[top] = launched[last]
    launched[inner] = 0
    return dropped


def _device_time(table: EventTable, lasting: Array, nested: Array, on_device: Array, parent: Array | None) -> Array:
    """Device time in ns that each op launched itself; 0 in all other rows.

    `parent`: the tree of the nested rows, if no two of them overlap partially.
    """
    kinds = table.column("kind")
    launched = np.zeros(len(table), dtype=np.int64)
    # The shadow of an annotation spans its kernels: adding it would count them twice. Torch's ops do
    # not take up MTIA work either.
    skipped = rules.is_kind(kinds, Kind.GPU_USER_ANNOTATION) | (table.column("device_type") == DeviceType.MTIA)
    work = np.flatnonzero(on_device & ~skipped)
    if not len(work):
        return launched
    op = _op_by_external_id(table, nested, work)
    unknown = op == NO_ROW
    op[unknown] = _op_around_launch(table, nested, work[unknown], parent)
    known = op != NO_ROW
    return _engine.sum_by(op[known], len(table), lasting[work[known]])


def _op_by_external_id(table: EventTable, nested: Array, work: Array) -> Array:
    """The op that each device row names as its own; NO_ROW where it names none."""
    external = table.column("external")
    op = np.full(len(work), NO_ROW, dtype=np.int64)
    candidates = nested & rules.is_kind(table.column("kind"), Kind.CPU_OP, Kind.USER_ANNOTATION)
    ops = np.flatnonzero(candidates & (external > 0))
    wanted = external[work]
    # Some releases wrote the correlation id in the place of the op's.
    if not len(ops) or bool((wanted == table.column("correlation")[work]).all()):
        return op
    # An id of two ops (several processes in one file) says nothing.
    place = _engine.match_ids(np.ascontiguousarray(external[ops]), np.ascontiguousarray(wanted))
    return np.where(place == NO_ROW, NO_ROW, ops[place])


def _op_around_launch(table: EventTable, nested: Array, work: Array, parent: Array | None) -> Array:
    """The innermost op that encloses the launch of each device row. `parent` as in `_device_time`."""
    op = np.full(len(work), NO_ROW, dtype=np.int64)
    if not len(work):
        return op
    launch = table.column("linked")[work]
    known = np.flatnonzero((launch >= 0) & (launch < len(table)))
    launch = launch[known]
    ops = nested & rules.is_kind(table.column("kind"), Kind.CPU_OP)
    if parent is None:
        # Calls of other kinds may overlap an op and still hide it: among ops and launches only, an op's launches
        # are its children or its launches' children.
        launches = np.zeros(len(table), dtype=bool)
        launches[launch] = True
        parent, _ = nest(table, ops | (launches & nested))
    op[known] = _engine.nearest_above(parent, ops.view(np.uint8), launch)
    return op


def _kept_parent(parent: Array, dropped: Array) -> Array:
    """Parents when dropped calls are gone: what they enclosed belongs to the wrapper that took them over."""
    return nearest(parent.copy(), ~dropped) if dropped.any() else parent


def _memory(
    table: EventTable, calls: Array, marks: Array, parent: Array, dropped: Array, lasting: Array
) -> Memory | None:
    if not rules.is_named(table, frozenset({MEMORY_NAME})).any():
        return None
    parent = _kept_parent(parent, dropped)
    rows = np.flatnonzero(calls)
    totals = usage_within(table, rows, lasting)
    own = [total.copy() for total in totals]
    inner = rows[parent[rows] != NO_ROW]
    waiting = np.flatnonzero(calls & rules.is_async(table))
    # Running out of memory allocates nothing.
    alone = np.flatnonzero(marks & rules.is_named(table, frozenset({MEMORY_NAME})))
    for total, self_total, mine in zip(totals, own, own_usage(table, alone), strict=True):
        self_total -= _engine.sum_by(parent[inner], len(table), total[inner])
        self_total[waiting] = 0
        total[alone] = self_total[alone] = mine
    return Memory(totals[0], own[0], totals[1], own[1])


def _lonely_memory(table: EventTable, lasting: Array, calls: Array) -> Array:
    """Memory records that no CPU call on any thread covers; torch shows them as calls of no time."""
    marks = rules.is_named(table, frozenset({OUT_OF_MEMORY_NAME}))
    start = table.columns["start"]
    records = np.flatnonzero(rules.is_named(table, frozenset({MEMORY_NAME})))
    called = np.flatnonzero(calls)
    if not len(records) or not len(called):
        marks[records] = True
        return marks
    until = np.maximum.accumulate(start[called] + lasting[called])
    before = np.searchsorted(start[called], start[records], side="right")
    covered = (before > 0) & (until[np.maximum(before - 1, 0)] >= start[records])
    marks[records[~covered]] = True
    return marks
