"""Groups: which step each event belongs to, by nesting and by links across lines.

An event is the child of the innermost one around it on its line, a consumer that of its producer,
work on a device that of the call which launched it. Roots (`_r`, as StepTraceAnnotation marks them)
and all that descends from them are a group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profd.derive.timeline.space import MISSING, NO_TEXT, Space, in_time_order
from profd.events.table import Array

NO_GROUP = -1
_LEGACY_ROOT = "TraceContext"  # a root of level 1 although nothing marks it


@dataclass(frozen=True, slots=True)
class Groups:
    """The group of each event, NO_GROUP where it has none, and what groups are called."""

    of: Array  # int64
    names: dict[int, str]
    roots: dict[int, int]  # the event a group began with; none where the trace came with groups

    def name(self, group: int) -> str:
        """A group that nothing names is called by its number."""
        return self.names.get(group, str(group))


def find_groups(space: Space) -> Groups:
    """Those that the trace came with, else those of its roots in the order of level and start."""
    recorded = space.number("group_id")
    if (recorded != MISSING).any():
        return _recorded(space, recorded)
    levels = _levels(space)
    roots = np.flatnonzero(levels != MISSING)
    if not len(roots):
        return Groups(np.full(len(space), NO_GROUP, dtype=np.int64), {}, {})
    family = _Family(space)
    of = [NO_GROUP] * len(space)
    names: dict[int, str] = {}
    begun: dict[int, int] = {}
    numbers = space.number("step_num")
    for root in roots[np.lexsort((space.start[roots], -levels[roots]))].tolist():
        if family.has_ancestor(root, levels, int(levels[root])):
            continue
        group = len(names)
        family.spread(root, group, of)
        step = int(numbers[root])
        names[group] = f"{space.words[int(space.name[root])]} {group if step == MISSING else step}"
        begun[group] = root
    return Groups(np.array(of, dtype=np.int64), names, begun)


def inherit(space: Space, rows: Array, group: Array) -> Array:
    """Groups of a device's events, where those without one take the latest before them."""
    order = in_time_order(space, rows)
    found: Array = group.copy()
    has = found[order] != NO_GROUP
    latest = np.maximum.accumulate(np.where(has, np.arange(len(order)), -1))
    known = latest >= 0
    found[order[known]] = found[order[latest[known]]]
    return found


def _recorded(space: Space, recorded: Array) -> Groups:
    named = space.text("step_name")
    names = {
        int(recorded[row]): space.words[int(named[row])]
        for row in np.flatnonzero((recorded != MISSING) & (named != NO_TEXT)).tolist()
    }
    return Groups(np.where(recorded == MISSING, NO_GROUP, recorded), names, {})


def _levels(space: Space) -> Array:
    levels = space.number("_r").copy()
    if _LEGACY_ROOT in space.words:
        legacy = space.name == space.words.index(_LEGACY_ROOT)
        levels[legacy & (levels == MISSING)] = 1
    levels[space.on_device()] = MISSING
    return levels


class _Family:
    """Parents and children of events. One event may have several parents, and links may form cycles."""

    def __init__(self, space: Space) -> None:
        parent = nesting(space)
        sources, targets = _links(space)
        nested = np.flatnonzero(parent >= 0)
        above = np.concatenate([parent[nested], sources])
        below = np.concatenate([nested, targets])
        self._children = _Lists(above, below, len(space))
        self._parents = _Lists(below, above, len(space))

    def has_ancestor(self, event: int, levels: Array, level: int) -> bool:
        """Whether a root of this level is above an event."""
        seen, wait = {event}, [event]
        while wait:
            for above in self._parents.of(wait.pop()):
                if above not in seen:
                    if levels[above] == level:
                        return True
                    seen.add(above)
                    wait.append(above)
        return False

    def spread(self, root: int, group: int, of: list[int]) -> None:
        """Give a group to a root and all below it, but for what has one already and what is below that."""
        of[root], wait = group, [root]
        while wait:
            for below in self._children.of(wait.pop()):
                if of[below] == NO_GROUP:
                    of[below] = group
                    wait.append(below)


class _Lists:
    def __init__(self, keys: Array, values: Array, size: int) -> None:
        order = np.argsort(keys, kind="stable")
        self._values: list[int] = values[order].tolist()
        self._first: list[int] = np.searchsorted(keys[order], np.arange(size + 1)).tolist()

    def of(self, key: int) -> list[int]:
        return self._values[self._first[key] : self._first[key + 1]]


def nesting(space: Space) -> Array:
    """The innermost event around each on its line, -1 where there is none, on devices and for asynchronous ones."""
    parent = [-1] * len(space)
    rows = np.flatnonzero(~space.on_device() & (space.number("_a") == MISSING))
    rows = rows[np.lexsort((-space.end[rows], space.start[rows], space.line[rows]))]
    lines, ends, starts = space.line[rows].tolist(), space.end[rows].tolist(), space.start[rows].tolist()
    stack: list[tuple[int, int]] = []  # event, its end
    before = -1
    for row, line, start, end in zip(rows.tolist(), lines, starts, ends, strict=True):
        if line != before:
            stack.clear()
            before = line
        while stack and (stack[-1][1] < end or stack[-1][1] <= start < end):
            stack.pop()
        if stack:
            parent[row] = stack[-1][0]
        stack.append((row, end))
    return np.array(parent, dtype=np.int64)


def _links(space: Space) -> tuple[Array, Array]:
    """(from, to) across lines: producers to consumers, launches to what they launched."""
    found: list[tuple[int, int]] = []
    makers: dict[tuple[int, int], int] = {}
    kind, number = space.number("_pt"), space.number("_p")
    for row in np.flatnonzero((kind != MISSING) & (number != MISSING)).tolist():
        makers.setdefault((int(kind[row]), int(number[row])), row)
    kind, number = space.number("_ct"), space.number("_c")
    for row in np.flatnonzero((kind != MISSING) & (number != MISSING)).tolist():
        maker = makers.get((int(kind[row]), int(number[row])))
        if maker is not None and maker != row:
            found.append((maker, row))
    on_device = space.on_device()
    linked = space.correlation != MISSING
    calls = np.flatnonzero(linked & ~on_device)
    call_of = dict(zip(space.correlation[calls].tolist(), calls.tolist(), strict=True))
    work = np.flatnonzero(linked & on_device)
    for row, correlation in zip(work.tolist(), space.correlation[work].tolist(), strict=True):
        call = call_of.get(correlation)
        if call is not None:
            found.append((call, row))
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]
