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
from profd.events import NO_END, NO_ROW, DeviceType, EventTable, Kind
from profd.events.table import Array
from profd.query import rules

COLUMNS = ("name", "kind", "phase", "start", "end", "thread", "device_type")
# Read in addition where a device left records.
DEVICE_COLUMNS = ("correlation", "external", "linked")


@dataclass(slots=True)
class Calls:
    """Rows of a torch table before they are grouped; all arrays are as long as `row`. Times in ns."""

    row: Array  # of the table
    device_type: Array
    count: Array  # 1, or 0 for a row that only takes part in the times of others
    name: Array  # index of `names`
    names: list[str]
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
    """The calls of a whole trace (rows in start order, `first_row` 0)."""
    kinds, cpu = table.column("kind"), rules.is_cpu(table.column("device_type"))
    names, fold = rules.fold_steps(rules.names_of(table))
    name = fold[table.column("name")]
    shown = rules.is_work(kinds)
    shown &= ~rules.is_named(table, rules.UTILITY_OPS)

    lasting = durations(table)
    nested = shown & cpu & ~rules.is_kind(kinds, Kind.OVERHEAD)
    waiting = nested & rules.is_async(table)
    nested &= ~waiting
    parent, self_cpu = nest(table, nested)
    launched = _device_time(table, lasting, nested, shown & ~cpu)
    dropped = _merge_wrappers(name, parent, lasting, self_cpu, launched)
    device = _subtree_sums(launched, parent) if launched.any() else launched

    on_device = shown & ~cpu
    self_cpu[on_device | waiting] = 0
    device[on_device] = launched[on_device] = lasting[on_device]
    marks = _lonely_memory(table, lasting, shown & cpu)
    row = np.flatnonzero((shown & ~dropped) | marks)
    return Calls(
        row=row,
        device_type=np.where(marks, np.uint8(DeviceType.CPU), table.column("device_type"))[row],
        count=np.ones(len(row), dtype=np.int64),
        name=name[row],
        names=names,
        cpu=np.where(cpu, lasting, 0)[row],
        self_cpu=np.where(marks, 0, self_cpu)[row],
        device=device[row],
        self_device=launched[row],
    )


def nest(table: EventTable, include: Array) -> tuple[Array, Array]:
    """(parent row or NO_ROW, self time in ns) by strict interval nesting of the included rows of each thread."""
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
    inner = np.flatnonzero(parent != NO_ROW)
    above = parent[inner]
    alone = np.bincount(above, minlength=len(name))[above] == 1
    same = name[inner] == name[above]
    inner, above = inner[alone & same], above[alone & same]
    if not len(inner):
        return dropped
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


def _device_time(table: EventTable, lasting: Array, nested: Array, on_device: Array) -> Array:
    """Device time in ns that each op launched itself; 0 in all other rows."""
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
    op[unknown] = _op_around_launch(table, nested, work[unknown])
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
    ids, first, times = np.unique(external[ops], return_index=True, return_counts=True)
    place = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    # An id of two ops (several processes in one file) says nothing.
    found = (ids[place] == wanted) & (times[place] == 1)
    op[found] = ops[first[place[found]]]
    return op


def _op_around_launch(table: EventTable, nested: Array, work: Array) -> Array:
    """The innermost op that encloses the launch of each device row."""
    op = np.full(len(work), NO_ROW, dtype=np.int64)
    if not len(work):
        return op
    launch = table.column("linked")[work]
    kinds = table.column("kind")
    ops = nested & rules.is_kind(kinds, Kind.CPU_OP)
    launches = np.zeros(len(table), dtype=bool)
    launches[launch[(launch >= 0) & (launch < len(table))]] = True
    # Among ops and launches only, an op's launches are its children or its launches' children.
    parent, _ = nest(table, ops | (launches & nested))
    known = np.flatnonzero((launch >= 0) & (launch < len(table)))
    at = parent[launch[known]]
    climbing = np.flatnonzero((at != NO_ROW) & ~ops[at])
    while len(climbing):
        at[climbing] = parent[at[climbing]]
        climbing = climbing[(at[climbing] != NO_ROW) & ~ops[at[climbing]]]
    op[known] = at
    return op


def _subtree_sums(own: Array, parent: Array) -> Array:
    """Sum of `own` over each row and all below it; touches only rows with something below."""
    seen = np.zeros(len(parent), dtype=bool)
    at = np.flatnonzero(own)
    while len(at):
        seen[at] = True
        at = parent[at]
        at = at[at != NO_ROW]
        at = np.unique(at[~seen[at]])
    # From the leaves up: a row is passed on once all below it has arrived.
    rows = np.flatnonzero(seen & (parent != NO_ROW))
    missing = np.bincount(parent[rows], minlength=len(parent))
    total = own.copy()
    at = rows[missing[rows] == 0]
    while len(at):
        above = parent[at]
        np.add.at(total, above, total[at])
        np.subtract.at(missing, above, 1)
        at = np.unique(above[missing[above] == 0])
        at = at[parent[at] != NO_ROW]
    return total


def _lonely_memory(table: EventTable, lasting: Array, calls: Array) -> Array:
    """Memory records that no CPU call on any thread covers; torch shows them as calls of no time."""
    marks = rules.is_named(table, frozenset({rules.OUT_OF_MEMORY_NAME}))
    start = table.columns["start"]
    records = np.flatnonzero(rules.is_named(table, frozenset({rules.MEMORY_NAME})))
    called = np.flatnonzero(calls)
    if not len(records) or not len(called):
        marks[records] = True
        return marks
    until = np.maximum.accumulate(start[called] + lasting[called])
    before = np.searchsorted(start[called], start[records], side="right")
    covered = (before > 0) & (until[np.maximum(before - 1, 0)] >= start[records])
    marks[records[~covered]] = True
    return marks
