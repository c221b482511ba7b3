"""Memory of a trace: what was allocated, freed, and is still there, by stack (docs/json.md)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from profd import _engine
from profd.derive.memory import MEMORY_COLUMNS, MEMORY_NAME, MemoryUse, named
from profd.derive.steps import STEP_COLUMNS, Steps
from profd.events import NO_CODE, NO_END, NO_ROW, DeviceType, EventTable
from profd.events.table import Array
from profd.limits import ALIVE_STACKS_MAX
from profd.query import rules
from profd.query.grouping import STACK_FRAMES_MAX
from profd.query.part import Part, part_of, read_part
from profd.query.steps import StepMarks
from profd.segments.reader import TraceReader

NOT_RECORDED: Final = "no allocation was recorded: capture with --memory"
NO_ADDRESSES: Final = "allocations were recorded without addresses: which of them were freed is not known"
GROWTH_BLOCKS_MIN: Final = 3  # of fewer nobody can say that they grow
_PARTS: Final = 10
_COLUMNS: Final = tuple(dict.fromkeys((*MEMORY_COLUMNS, "ptr", "kind", "parent", "stack")))
_DEVICES: Final = {int(device): device.label for device in DeviceType}


def memory_of_trace(trace: TraceReader, *, limit: int, **part: Any) -> dict[str, Any]:
    """The answer of docs/json.md, at most `limit` stacks (0, or more than ALIVE_STACKS_MAX: that many).

    `part`: arguments of `part_of`; a block is alive that was allocated in the part and not freed in it.
    Exhausted where the part does not fit into a worker.
    """
    table = read_part(trace, part_of(trace, **part), _COLUMNS)
    use = MemoryUse()
    use.add(table)
    found = alive(table, _steps_of(trace)) if use.devices else None
    return {
        "message": NOT_RECORDED if not use.devices else NO_ADDRESSES if found is None else None,
        "devices": [asdict(one) for one in use.result()],
        "alive": None if found is None else found.as_json(min(limit or ALIVE_STACKS_MAX, ALIVE_STACKS_MAX)),
    }


def alive_in_all(trace: TraceReader, steps: Steps, stacks: int) -> dict[str, Any] | None:
    """Blocks that are alive at the end of a whole trace, with so many stacks; None where addresses are not known."""
    found = alive(read_part(trace, Part(), _COLUMNS), steps)
    return None if found is None else found.as_json(stacks)


def _steps_of(trace: TraceReader) -> Steps:
    marks = StepMarks()
    for table in trace.iterate(STEP_COLUMNS, args=False):
        marks.add(table)
    return marks.steps(trace)


@dataclass(frozen=True, slots=True)
class Alive:
    """Blocks that were allocated and not freed, by device and stack: a path of calls, and recorded frames."""

    table: EventTable
    rows: Array  # of the allocations
    first: Array  # of each group its first of `rows`, by place
    last: Array
    bytes: Array  # of each group
    blocks: Array
    steps: Array | None  # in how many of them the blocks of each group were allocated; None: the trace has no steps
    grows: Array  # bool: allocated all through the part, and not by what goes on at its end

    def as_json(self, limit: int) -> dict[str, Any]:
        """All together, and the groups that grow, then the others, each those with most bytes first."""
        order = np.lexsort((-self.bytes, ~self.grows))[:limit].tolist()
        return {
            "blocks": len(self.rows),
            "bytes": int(self.bytes.sum()),
            "stacks": len(self.first),
            "left_out": len(self.first) - len(order),
            "rows": [self._row(number) for number in order],
        }

    def _row(self, number: int) -> dict[str, Any]:
        at, until = (int(self.rows[places[number]]) for places in (self.first, self.last))
        start = self.table.columns["start"]
        device = int(self.table.column("device")[at])
        return {
            "device_type": _DEVICES.get(int(self.table.column("device_type")[at]), "other"),
            "device": None if device < 0 else device,
            "bytes": int(self.bytes[number]),
            "blocks": int(self.blocks[number]),
            "steps": None if self.steps is None else int(self.steps[number]),
            "grows": bool(self.grows[number]),
            "first_ns": int(start[at]),
            "last_ns": int(start[until]),
            "stack": stack_of(self.table, at),
        }


def alive(table: EventTable, steps: Steps) -> Alive | None:
    """Blocks alive at the end of a table, a whole trace or part (rows from 0 on); None: no record has an address."""
    records = named(table, MEMORY_NAME)
    size, address = table.column("bytes")[records], table.column("ptr")[records]
    known = (size != NO_END) & (size != 0) & (address != NO_END) & (address != 0)
    records, size, address = records[known], size[known], address[known]
    if not len(records):
        return None
    rows = records[_not_freed(table, records, size, address)]
    path = _paths(table, rows)
    keys = [path, table.column("device_type")[rows], table.column("device")[rows], _frames(table, rows)]
    group, first = _engine.group_rows([np.ascontiguousarray(key, dtype=np.int64) for key in keys])
    last = np.zeros(len(first), dtype=np.int64)
    last[group] = np.arange(len(rows))
    total = _engine.sum_by(group, len(first), np.ascontiguousarray(table.column("bytes")[rows]))
    times = table.columns["start"][rows]
    seen = _in_steps(steps, group, len(first), times)
    grows = _grows(table, group, len(first), times) if seen is None else 2 * seen > _steps_within(table, steps)
    count = np.bincount(group, minlength=len(first))
    return Alive(table, rows, first, last, total, count, seen, grows & (count >= GROWTH_BLOCKS_MIN))


def _not_freed(table: EventTable, records: Array, size: Array, address: Array) -> Array:
    """Places of allocations after which nothing is said of their address, ascending.

    A block at an address that is allocated again had been freed, also where that record is missing.
    """
    places = [table.column(name)[records] for name in ("process", "device_type", "device")]
    block, _ = _engine.group_rows([np.ascontiguousarray(column, dtype=np.int64) for column in (*places, address)])
    order = _engine.argsort(block)
    last = np.append(block[order][1:] != block[order][:-1], True)
    found = order[last]
    return np.sort(found[size[found] > 0])


def _paths(table: EventTable, rows: Array) -> Array:
    """The path of calls around each of these rows, as a number."""
    parent = np.ascontiguousarray(table.column("parent"))
    within = np.zeros(len(table), dtype=np.int64)
    within[rows] = 1
    # Only what is above one of them: most of a trace is not.
    kept = np.flatnonzero(_engine.subtree_sums(within, parent) > 0)
    place = np.full(len(table) + 1, NO_ROW, dtype=np.int64)  # the last answers for NO_ROW
    place[kept] = np.arange(len(kept))
    _, code = rules.shown_names(rules.names_of(table), table.column("name")[kept])
    kind = table.column("kind")[kept]
    key, first = _engine.group_rows([code.astype(np.int64), kind.astype(np.int64)])
    folds = rules.is_kind(kind[first], *rules.FUNCTIONS).view(np.uint8)
    path, *_ = _engine.call_paths(key.astype(np.int32), folds, place[parent[kept]])
    found: Array = path[place[rows]]
    return found


def _frames(table: EventTable, rows: Array) -> Array:
    """Codes of the stack that was recorded with each of these rows, or with the call around it."""
    stack, parent = table.column("stack"), table.column("parent")[rows]
    of_call = np.where(parent == NO_ROW, NO_CODE, stack[parent])
    found: Array = np.where(stack[rows] == NO_CODE, of_call, stack[rows])
    return found


def _in_steps(steps: Steps, group: Array, groups: int, times: Array) -> Array | None:
    """In how many steps the blocks of each group were allocated."""
    if not len(steps):
        return None
    at = np.searchsorted(steps.start, times, side="right") - 1
    inside = (at >= 0) & (times < steps.end[np.maximum(at, 0)])
    pairs = np.unique(group[inside].astype(np.int64) * len(steps) + at[inside])
    return np.bincount(pairs // len(steps), minlength=groups)


def _steps_within(table: EventTable, steps: Steps) -> int:
    """How many steps a table reaches into."""
    start = table.columns["start"]
    return int(((steps.end > start[0]) & (steps.start <= start[-1])).sum())


def _grows(table: EventTable, group: Array, groups: int, times: Array) -> Array:
    """Without steps: whether blocks of each group were allocated in more than half of ten equal parts of the time."""
    first, last = int(table.columns["start"][0]), int(table.columns["start"][-1])
    part = ((times - first) / max(last - first, 1) * _PARTS).astype(np.int64).clip(0, _PARTS - 1)
    pairs = np.unique(group.astype(np.int64) * _PARTS + part)
    spread: Array = 2 * np.bincount(pairs // _PARTS, minlength=groups) > _PARTS
    return spread


def stack_of(table: EventTable, row: int) -> list[str]:
    """The names of the calls around an allocation, innermost first, then the frames that were recorded with it.

    At most STACK_FRAMES_MAX. Frames are left out where functions were recorded as calls: they are the same.
    """
    names, parent = rules.names_of(table), table.column("parent")
    found: list[int] = []
    at = int(parent[row])
    while at >= 0 and len(found) < STACK_FRAMES_MAX:
        found.append(at)
        at = int(parent[at])
    codes = table.column("name")[found].tolist()
    stack = rules.demangled([names[code] for code in codes if code >= 0])
    if rules.is_kind(table.column("kind")[found], *rules.FUNCTIONS).any():
        return stack
    frames = int(_frames(table, np.array([row]))[0])
    if frames != NO_CODE:
        stack += [frame for frame in table.dictionaries["stack"].values[frames].split(";") if frame]
    return stack[:STACK_FRAMES_MAX]
