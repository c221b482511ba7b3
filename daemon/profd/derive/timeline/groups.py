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

from profd import _engine
from profd.derive.timeline.loops import PROCESS, Loops, find_loops
from profd.derive.timeline.space import MISSING, NO_TEXT, TEXTS, Space, in_device_order
from profd.errors import Exhausted
from profd.events.distinct import distinct
from profd.events.table import Array
from profd.limits import XSPACE_ANCESTORS_MAX, XSPACE_NAMING_MAX

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
    """The groups that the trace came with, else iterations of TensorFlow's loops, else its roots by level and start."""
    recorded = space.number("group_id")
    if (recorded != MISSING).any():
        return _recorded(space, recorded)
    levels = _levels(space)
    loops = find_loops(space)
    if loops.unclear or not (loops.iterations or (levels != MISSING).any()):
        return Groups(np.full(len(space), NO_GROUP, dtype=np.int64), {}, {})
    family = _Family(space, loops)
    of, begun = family.groups(_roots(space, levels, loops), None if loops.iterations else levels)
    names = {group: family.name(root, group) for group, root in enumerate(begun)}
    return Groups(of, names, dict(enumerate(begun)))


def _roots(space: Space, levels: Array, loops: Loops) -> Array:
    if loops.iterations:
        return np.array([own[0] for own in loops.iterations], dtype=np.int64)
    rows = np.flatnonzero(levels != MISSING)
    found: Array = rows[np.lexsort((-space.end[rows], space.start[rows], -levels[rows]))]
    return found


def inherit(space: Space, rows: Array, group: Array) -> None:
    """Of a device's events give those without a group the latest before them, in `group`, which is of all events."""
    order = in_device_order(space, rows)
    has = group[order] != NO_GROUP
    latest = np.maximum.accumulate(np.where(has, np.arange(len(order)), -1))
    known = latest >= 0
    group[order[known]] = group[order[latest[known]]]


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
        above, below = (np.ascontiguousarray(column) for column in np.concatenate(pairs).T)
        self._links = _engine.Family(above, below, self._size)
        self._known: dict[str, dict[int, int | None]] = {}
        self._looked = 0

    def groups(self, roots: Array, levels: Array | None) -> tuple[Array, list[int]]:
        """(the group of each event, the roots they began with): from each root downwards, what has none already.

        With levels a root below another of its level begins none.
        """
        try:
            level = np.empty(0, dtype=np.int64) if levels is None else levels
            of, begun = self._links.groups(roots, level, XSPACE_ANCESTORS_MAX)
        except ValueError as error:
            raise Exhausted(f"The steps of the XSpace cannot be told: {error}.") from error
        return of[: len(self._space)], begun.tolist()

    def name(self, root: int, group: int) -> str:
        """What is executed, and which of it: both as the root or the nearest event above it says."""
        space = self._space
        own = space.words[int(space.name[root])]
        kind = self._nearest(root, "graph_type")
        which = self._nearest(root, "iter_num")
        if which is None:
            which = self._nearest(root, "step_num")
        what = space.words[kind] if kind is not None else "" if own in _IMPLICIT_ROOTS else own
        return f"{what} {group if which is None else which}".lstrip()

    def _nearest(self, root: int, key: str) -> int | None:
        """A stat or text of an event, or of the nearest above that has it."""
        known = self._known.setdefault(key, {})
        values, missing = (
            (self._space.texts.get(key), NO_TEXT) if key in TEXTS else (self._space.numbers.get(key), MISSING)
        )
        if values is None:
            return None
        passed: dict[int, None] = {}  # roots are in roots: what was found for one is not looked for again
        at, found = root, None
        while at not in passed:
            if at in known:
                found = known[at]
                break
            passed[at] = None
            above = [] if self._has(values, at, missing) else self._links.above(at)
            if len(above) != 1:
                found = next((int(values[one]) for one in self._upwards(at) if self._has(values, one, missing)), None)
                break
            at = above[0]
        known |= dict.fromkeys(passed, found)
        return found

    def _has(self, values: Array, event: int, missing: int) -> bool:
        return event < len(values) and bool(values[event] != missing)

    def _upwards(self, event: int) -> Iterator[int]:
        """An event and all above it, the nearest first."""
        seen, wait = {event}, deque([event])
        while wait:
            self._looked += 1
            if self._looked > XSPACE_NAMING_MAX:
                raise Exhausted(
                    "The steps of the XSpace cannot be named: too many events lie above their roots. "
                    "Capture a shorter window."
                )
            at = wait.popleft()
            yield at
            new = [above for above in self._links.above(at) if above not in seen]
            seen.update(new)
            wait.extend(new)


def nesting(space: Space) -> Array:
    """The innermost event around each on its line, -1 where there is none, on TPUs and for asynchronous ones."""
    parent = np.full(len(space), -1, dtype=np.int64)
    rows = np.flatnonzero(~space.on_device("TPU") & (space.number("_a") == MISSING))
    rows = rows[np.lexsort((-space.end[rows], space.start[rows], space.line[rows]))]
    around = _engine.enclosing(space.line[rows], space.end[rows])
    inside = around >= 0
    parent[rows[inside]] = rows[around[inside]]
    return parent


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
    """The input that an iteration of an executor reads from its pipeline, on whatever thread."""
    steps, numbers = space.number("id"), space.number("iter_num")
    words = {word: code for code, word in enumerate(space.words)}
    read = [words[name] for name in _INPUTS if name in words]
    rows = np.flatnonzero(np.isin(space.name, [*read, words.get(PROCESS, NO_TEXT)]))
    rows = rows[(steps[rows] != MISSING) & (numbers[rows] != MISSING)]
    keys = np.empty(len(space), dtype=np.int64)
    _, keys[rows] = distinct(steps[rows], numbers[rows])
    of_input = np.isin(space.name[rows], read)
    return _pairs(keys, rows[~of_input], rows[of_input])


def _pairs(keys: Array, parents: Array, children: Array) -> Array:
    """(parent, child) where their keys are equal; of several parents with one key the last."""
    order = parents[np.argsort(keys[parents], kind="stable")]
    last = np.searchsorted(keys[order], keys[children], side="right") - 1
    met = (last >= 0) & (keys[order[np.maximum(last, 0)]] == keys[children]) if len(order) else np.zeros(0, dtype=bool)
    found: Array = np.column_stack([order[last[met]], children[met]]) if len(order) else np.empty((0, 2), np.int64)
    return found
