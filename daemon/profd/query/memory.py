"""Memory of a trace: what was allocated, freed, and is still there, by stack (docs/json.md)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from profd import _engine
from profd.derive.memory import MemoryUse
from profd.derive.steps import STEP_COLUMNS, Steps
from profd.events import NO_CODE, NO_ROW, DeviceType, EventTable
from profd.events.table import Array
from profd.limits import ALIVE_STACKS_MAX
from profd.query import rules
from profd.query.allocations import BLOCK_COLUMNS, NO_ADDRESSES, NOT_RECORDED, frames_of, paths_to, records_of
from profd.query.grouping import STACK_FRAMES_MAX
from profd.query.part import Part, part_of, read_part
from profd.query.steps import StepMarks
from profd.segments.reader import TraceReader

GROWTH_BLOCKS_MIN: Final = 3  # of fewer nobody can say that they grow
_PARTS: Final = 10
_DEVICES: Final = {int(device): device.label for device in DeviceType}


def memory_of_trace(trace: TraceReader, *, limit: int, **part: Any) -> dict[str, Any]:
    """The answer of docs/json.md, at most `limit` stacks (0, or more than ALIVE_STACKS_MAX: that many).

    `part`: arguments of `part_of`; a block is alive that was allocated in the part and not freed in it.
    Exhausted where the part does not fit into a worker.
    """
    table = read_part(trace, part_of(trace, **part), BLOCK_COLUMNS)
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
    found = alive(read_part(trace, Part(), BLOCK_COLUMNS), steps)
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
    records = records_of(table)
    if records is None:
        return None
    rows = records.rows[(records.size > 0) & (records.following == NO_ROW)]
    path = paths_to(table, rows).path
    keys = [path, table.column("device_type")[rows], table.column("device")[rows], frames_of(table, rows)]
    group, first = _engine.group_rows([np.ascontiguousarray(key, dtype=np.int64) for key in keys])
    last = np.zeros(len(first), dtype=np.int64)
    last[group] = np.arange(len(rows))
    total = _engine.sum_by(group, len(first), np.ascontiguousarray(table.column("bytes")[rows]))
    times = table.columns["start"][rows]
    seen = _in_steps(steps, group, len(first), times)
    grows = _grows(table, group, len(first), times) if seen is None else 2 * seen > _steps_within(table, steps)
    count = np.bincount(group, minlength=len(first))
    return Alive(table, rows, first, last, total, count, seen, grows & (count >= GROWTH_BLOCKS_MIN))


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
    frames = int(frames_of(table, np.array([row]))[0])
    if frames != NO_CODE:
        stack += [frame for frame in table.dictionaries["stack"].values[frames].split(";") if frame]
    return stack[:STACK_FRAMES_MAX]
