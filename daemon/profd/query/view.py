"""The calls that torch.profiler's tables would show, from the events of a trace.

The work that torch does with objects (`_parse_kineto_results`, `EventList._build_tree`) is done here with columns:
utility ops and marks left out, CPU calls nested per thread by interval, wrappers that only call an op of their own name
merged with it, device time attributed to the op that launched it. Unlike in torch, a function that calls itself wraps
nothing: each call counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from profd import _engine
from profd.derive.ancestors import nearest
from profd.derive.memory import MEMORY_NAME, OUT_OF_MEMORY_NAME, named, own_usage, usage_within
from profd.events import NO_ROW, DeviceType, EventTable
from profd.events.table import Array
from profd.query import event_times, rules
from profd.query.roles import COSTS, MARK, NESTS, OP, OWNER, SHOWN, WORK, having, roles_of

COLUMNS = ("name", "kind", *rules.ASYNC_COLUMNS, "start", "end", "thread", "device_type")
# Read in addition where there are allocations.
MEMORY_COLUMNS = ("process", "bytes")
# Read in addition where a device left records.
DEVICE_COLUMNS = ("external", "linked")

# (rows ascending, their external ids) -> whether all of these are the rows' correlation ids.
AreCorrelations = Callable[[Array, Array], bool]
# (table, roles, parents as in `ops_around`) -> device time in ns that each row launched itself
Launched = Callable[[EventTable, Array, Array | None], Array]


@dataclass(slots=True)
class CallColumns:
    """The rows of a table as calls to be grouped; arrays are as long as the table. Times in ns."""

    counted: Array  # bool: rows that are calls; the times of others still add up
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
    """Duration of each row in ns; 0 where no end was seen or it lies before the start; saturating."""
    start, end = table.columns["start"], table.column("end")
    return _engine.durations(np.ascontiguousarray(start), np.ascontiguousarray(end))


def torch_calls(
    table: EventTable,
    are_correlations: AreCorrelations | None = None,
    left_out: Array | None = None,
    launched: Launched | None = None,
) -> CallColumns:
    """The calls of a whole trace (rows in start order, `first_row` 0); rows that torch does not show have no times.

    `are_correlations` looks the ids up where the table does not have them. `left_out` (bool): rows of no call.
    `launched`: knows the device time of each op where the table has no device work.
    """
    names, name = rules.shown_names(rules.names_of(table), table.column("name"))
    role, lasting = roles_of(table), durations(table)
    if left_out is not None:
        role[left_out] = 0
    marks = _lonely_memory(table, lasting, role)
    role[marks] |= MARK

    parent, self_cpu, crossed = nest_and_count(table, having(role, NESTS))
    tree = None if crossed else parent
    if launched is not None:
        own_device = launched(table, role, tree)
    elif having(role, COSTS).any():
        own_device = _device_time(table, lasting, role, tree, are_correlations or partial(_are_correlations, table))
    else:
        own_device = event_times.own_times(table, having(role, OWNER), parent)
    merging = _told_apart(table, np.ascontiguousarray(name))
    device, counted, dropped = _engine.call_times(role, merging, parent, lasting, self_cpu, own_device)
    memory = _memory(table, role, marks, parent, dropped.view(np.bool_), lasting)
    device_type = table.column("device_type")
    if len(marks):
        device_type = device_type.copy()
        device_type[marks] = DeviceType.CPU
    return CallColumns(
        counted.view(np.bool_), device_type, name, names, lasting, self_cpu, device, own_device, parent, memory
    )


def _told_apart(table: EventTable, name: Array) -> Array:
    """Names by which wrappers are known: of functions no two are the same."""
    functions = rules.is_kind(table.column("kind"), *rules.FUNCTIONS)
    if not functions.any():
        return name
    return np.where(functions, -2 - np.arange(len(name), dtype=np.int32), name)


def nest(table: EventTable, include: Array) -> tuple[Array, Array]:
    """(parent row or NO_ROW, self time in ns) by strict interval nesting of the included rows of each thread."""
    return nest_and_count(table, include)[:2]


def nest_and_count(table: EventTable, include: Array) -> tuple[Array, Array, int]:
    """`nest`, and how many partial overlaps there were. `include`: bool, or bytes that are 0 for no."""
    return _engine.nest(
        np.ascontiguousarray(table.columns["start"], dtype=np.int64),
        np.ascontiguousarray(table.column("end"), dtype=np.int64),
        np.ascontiguousarray(table.column("thread"), dtype=np.int32),
        include.view(np.uint8),
    )


def _are_correlations(table: EventTable, rows: Array, ids: Array) -> bool:
    return bool((ids == table.column("correlation")[rows]).all())


def _device_time(
    table: EventTable, lasting: Array, role: Array, parent: Array | None, are_correlations: AreCorrelations
) -> Array:
    """Device time in ns that each op launched itself; 0 in all other rows.

    `parent`: the tree of the nested rows, if no two of them overlap partially.
    """
    work = np.flatnonzero(having(role, COSTS))
    op = op_by_external_id(np.ascontiguousarray(table.column("external")), role, work, are_correlations)
    unknown = op == NO_ROW
    op[unknown] = _op_around_launch(table, role, work[unknown], parent)
    known = op != NO_ROW
    return _engine.sum_by(op[known], len(table), lasting[work[known]])


def op_by_external_id(external: Array, role: Array, work: Array, are_correlations: AreCorrelations) -> Array:
    """The op that each device row names as its own; NO_ROW where it names none."""
    wanted = external[work]
    # Some releases wrote the correlation id in the place of the op's.
    if bool((wanted <= 0).all()) or are_correlations(work, wanted):
        return np.full(len(work), NO_ROW, dtype=np.int64)
    # An id of two ops (several processes in one file) says nothing.
    return _engine.match_ids(external, having(role, OWNER), wanted)


def _op_around_launch(table: EventTable, role: Array, work: Array, parent: Array | None) -> Array:
    """The innermost op that encloses the launch of each device row. `parent` as in `_device_time`."""
    op = np.full(len(work), NO_ROW, dtype=np.int64)
    if not len(work):
        return op
    launch = table.column("linked")[work]
    known = np.flatnonzero((launch >= 0) & (launch < len(table)))
    op[known] = ops_around(table, role, launch[known], parent)
    return op


def ops_around(table: EventTable, role: Array, launch: Array, parent: Array | None) -> Array:
    """The innermost op that encloses each of these rows. `parent` as in `_device_time`."""
    ops = having(role, OP)
    if parent is None:
        # Calls of other kinds may overlap an op and still hide it: among ops and launches only, an op's launches
        # are its children or its launches' children.
        launches = np.zeros(len(table), dtype=np.uint8)
        launches[launch] = NESTS
        parent, _ = nest(table, ops | (launches & role))
    return _engine.nearest_above(parent, ops, np.ascontiguousarray(launch))


def _kept_parent(parent: Array, dropped: Array) -> Array:
    """Parents when dropped calls are gone: what they enclosed belongs to the wrapper that took them over."""
    return nearest(parent.copy(), ~dropped) if dropped.any() else parent


def _memory(
    table: EventTable, role: Array, marks: Array, parent: Array, dropped: Array, lasting: Array
) -> Memory | None:
    if not rules.is_named(table, frozenset({MEMORY_NAME})).any():
        return None
    calls = _on_threads(role) & ~dropped
    parent = _kept_parent(parent, dropped)
    rows = np.flatnonzero(calls)
    totals = usage_within(table, rows, lasting)
    own = [total.copy() for total in totals]
    inner = rows[parent[rows] != NO_ROW]
    waiting = np.flatnonzero(calls & rules.is_async(table))
    # Running out of memory allocates nothing.
    alone = marks[rules.is_named(table, frozenset({MEMORY_NAME}))[marks]]
    for total, self_total, mine in zip(totals, own, own_usage(table, alone), strict=True):
        self_total -= _engine.sum_by(parent[inner], len(table), total[inner])
        self_total[waiting] = 0
        total[alone] = self_total[alone] = mine
    return Memory(totals[0], own[0], totals[1], own[1])


def _on_threads(role: Array) -> Array:
    on_threads: Array = (role & (SHOWN | WORK)) == SHOWN
    return on_threads


def _lonely_memory(table: EventTable, lasting: Array, role: Array) -> Array:
    """Memory records that no CPU call on any thread covers; torch shows them as calls of no time. Rows."""
    full = named(table, OUT_OF_MEMORY_NAME)
    records = named(table, MEMORY_NAME)
    if not len(records):
        return full
    called = np.flatnonzero(_on_threads(role))
    if len(called):
        start = table.columns["start"]
        until = np.maximum.accumulate(start[called] + lasting[called])
        before = np.searchsorted(start[called], start[records], side="right")
        covered = (before > 0) & (until[np.maximum(before - 1, 0)] >= start[records])
        records = records[~covered]
    return np.concatenate([full, records])
