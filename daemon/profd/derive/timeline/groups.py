"""Groups: which step each event belongs to, by nesting and by links across lines.

An event is the child of the innermost one around it on its line, a consumer that of its producer,
work on a device that of the call which launched it. Roots (`_r`, as StepTraceAnnotation marks them)
and all that descends from them are a group. Iterations of TensorFlow's loops take their place where a trace has any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.derive.timeline.loops import PROCESS, Loops, find_loops
from profd.derive.timeline.space import MISSING, NO_TEXT, Space, in_device_order
from profd.events.table import Array

NO_GROUP = -1
_LEGACY_ROOT: Final = "TraceContext"  # a root of level 1 although nothing marks it
_IMPLICIT_ROOTS: Final = ("FunctionRun", "SessionRun", "RunGraph", PROCESS)  # they name no group
_INPUTS: Final = ("IteratorGetNextOp::DoCompute", "IteratorGetNextAsOptionalOp::DoCompute")
_MANY: Final = 64  # producers and consumers of one id: then it tells nothing


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
    """Those that the trace came with, else iterations of TensorFlow's loops, else its roots by level and start."""
    recorded = space.number("group_id")
    if (recorded != MISSING).any():
        return _recorded(space, recorded)
    levels = _levels(space)
    loops = find_loops(space)
    if loops.unclear or not (loops.iterations or (levels != MISSING).any()):
        return Groups(np.full(len(space), NO_GROUP, dtype=np.int64), {}, {})
    family = _Family(space, loops)
    of = family.nothing()
    names: dict[int, str] = {}
    begun: dict[int, int] = {}
    for root in _roots(space, levels, loops):
        if not loops.iterations and family.has_ancestor(root, levels, int(levels[root])):
            continue
        group = len(names)
        family.spread(root, group, of)
        names[group] = family.name(root, group)
        begun[group] = root
    return Groups(np.array(of[: len(space)], dtype=np.int64), names, begun)


def _roots(space: Space, levels: Array, loops: Loops) -> list[int]:
    if loops.iterations:
        return [own[0] for own in loops.iterations]
    rows = np.flatnonzero(levels != MISSING)
    found: list[int] = rows[np.lexsort((-space.end[rows], space.start[rows], -levels[rows]))].tolist()
    return found


def inherit(space: Space, rows: Array, group: Array) -> Array:
    """Groups of a device's events, where those without one take the latest before them."""
    order = in_device_order(space, rows)
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
    """Parents and children of events. One event may have several parents, and links may form cycles.

    Numbers from the size of the space on are meeting points of producers and consumers, which are no events.
    """

    def __init__(self, space: Space, loops: Loops) -> None:
        self._space = space
        self._size, links = _links(space)
        parent = nesting(space)
        nested = np.flatnonzero(parent >= 0)
        looped = [(own[0], event) for own in loops.iterations for event in own[1:]]
        pairs = [*links, np.column_stack([parent[nested], nested]), np.array(looped, dtype=np.int64).reshape(-1, 2)]
        above, below = np.concatenate(pairs).T
        self._children = _Lists(above, below, self._size)
        self._parents = _Lists(below, above, self._size)

    def nothing(self) -> list[int]:
        """No group for anything."""
        return [NO_GROUP] * self._size

    def has_ancestor(self, event: int, levels: Array, level: int) -> bool:
        """Whether a root of this level is above an event."""
        return any(at != event and at < len(levels) and levels[at] == level for at in self._upwards(event))

    def spread(self, root: int, group: int, of: list[int]) -> None:
        """Give a group to a root and all below it, but for what has one already and what is below that."""
        if of[root] != NO_GROUP:
            return
        of[root], wait = group, [root]
        while wait:
            for below in self._children.of(wait.pop()):
                if of[below] == NO_GROUP:
                    of[below] = group
                    wait.append(below)

    def name(self, root: int, group: int) -> str:
        """What is executed, and which of it: both as the root or the nearest event above it says."""
        space = self._space
        own = space.words[int(space.name[root])]
        kind = self._nearest(root, space.text("graph_type"), NO_TEXT)
        which = self._nearest(root, space.number("iter_num"), MISSING)
        if which is None:
            which = self._nearest(root, space.number("step_num"), MISSING)
        what = space.words[kind] if kind is not None else "" if own in _IMPLICIT_ROOTS else own
        return f"{what} {group if which is None else which}".lstrip()

    def _nearest(self, event: int, values: Array, missing: int) -> int | None:
        for at in self._upwards(event):
            if at < len(values) and values[at] != missing:
                return int(values[at])
        return None

    def _upwards(self, event: int) -> Iterator[int]:
        """An event and all above it, the nearest first."""
        seen, wait = {event}, deque([event])
        while wait:
            at = wait.popleft()
            yield at
            new = [above for above in self._parents.of(at) if above not in seen]
            seen.update(new)
            wait.extend(new)


class _Lists:
    def __init__(self, keys: Array, values: Array, size: int) -> None:
        order = np.argsort(keys, kind="stable")
        self._values: list[int] = values[order].tolist()
        self._first: list[int] = np.searchsorted(keys[order], np.arange(size + 1)).tolist()

    def of(self, key: int) -> list[int]:
        return self._values[self._first[key] : self._first[key + 1]]


def nesting(space: Space) -> Array:
    """The innermost event around each on its line, -1 where there is none, on TPUs and for asynchronous ones."""
    parent = [-1] * len(space)
    rows = np.flatnonzero(~space.on_device("TPU") & (space.number("_a") == MISSING))
    rows = rows[np.lexsort((-space.end[rows], space.start[rows], space.line[rows]))]
    lines, ends = space.line[rows].tolist(), space.end[rows].tolist()
    stack: list[tuple[int, int]] = []  # event, its end
    before = -1
    for row, line, end in zip(rows.tolist(), lines, ends, strict=True):
        if line != before:
            stack.clear()
            before = line
        while stack and stack[-1][1] < end:
            stack.pop()
        if stack:
            parent[row] = stack[-1][0]
        stack.append((row, end))
    return np.array(parent, dtype=np.int64)


def _links(space: Space) -> tuple[int, list[Array]]:
    """(how many numbers are in use, pairs from and to): producers and consumers, launches and what they launched."""
    made, used = _contexts(space, "_pt", "_p"), _contexts(space, "_ct", "_c")
    pairs: list[tuple[int, int]] = []
    size = len(space)
    for context, makers in made.items():
        users = used.get(context, [])
        if not users or min(len(makers), len(users)) >= _MANY:
            continue
        # Many to many would be a product.
        pairs += [(maker, size) for maker in makers] + [(size, user) for user in users]
        size += 1
    on_device, linked = space.on_device(), space.correlation != MISSING
    launches = _pairs(space.correlation, np.flatnonzero(linked & ~on_device), np.flatnonzero(linked & on_device))
    return size, [np.array(pairs, dtype=np.int64).reshape(-1, 2), launches, _inputs(space)]


def _contexts(space: Space, kind: str, number: str) -> dict[tuple[int, int], list[int]]:
    kinds, numbers = space.number(kind), space.number(number)
    rows = np.flatnonzero((kinds != MISSING) & (numbers != MISSING))
    found: dict[tuple[int, int], list[int]] = {}
    for row, one, other in zip(rows.tolist(), kinds[rows].tolist(), numbers[rows].tolist(), strict=True):
        found.setdefault((one, other), []).append(row)
    return found


def _inputs(space: Space) -> Array:
    """What an iteration of an executor reads from its input pipeline, on whatever thread."""
    steps, numbers = space.number("id"), space.number("iter_num")
    words = {word: code for code, word in enumerate(space.words)}
    read = [words[name] for name in _INPUTS if name in words]
    rows = np.flatnonzero(np.isin(space.name, [*read, words.get(PROCESS, NO_TEXT)]))
    rows = rows[(steps[rows] != MISSING) & (numbers[rows] != MISSING)]
    keys = np.empty(len(space), dtype=np.int64)
    _, keys[rows] = np.unique(np.column_stack([steps[rows], numbers[rows]]), axis=0, return_inverse=True)
    of_input = np.isin(space.name[rows], read)
    return _pairs(keys, rows[~of_input], rows[of_input])


def _pairs(keys: Array, parents: Array, children: Array) -> Array:
    """(parent, child) where their keys are equal; of several parents with one key the last."""
    order = parents[np.argsort(keys[parents], kind="stable")]
    last = np.searchsorted(keys[order], keys[children], side="right") - 1
    met = (last >= 0) & (keys[order[np.maximum(last, 0)]] == keys[children]) if len(order) else np.zeros(0, dtype=bool)
    found: Array = np.column_stack([order[last[met]], children[met]]) if len(order) else np.empty((0, 2), np.int64)
    return found
