"""Blocks of memory as a tree of the stacks that allocated them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from profd import _engine
from profd.events import NO_CODE, NO_ROW, DeviceType, Dictionary, EventTable, Kind
from profd.events.table import Array
from profd.limits import QUERY_ROWS_MAX
from profd.query import rules
from profd.query.allocations import PathsTo, frames_of, paths_to
from profd.query.grouping import STACK_FRAMES_MAX
from profd.query.merged_paths import words_of

_SEPARATOR: Final = ";"


@dataclass(frozen=True, slots=True)
class MemoryTree:
    """A column for each number of a path; bytes of blocks."""

    above: Array  # path of the caller, or NO_ROW
    name: Array  # index of `names`, or NO_CODE
    names: list[str]
    kind: Array
    bytes: Array  # of blocks that were allocated in it or below
    own: Array  # in it alone
    blocks: Array  # in it or below
    left_out: int = 0  # stacks with fewest bytes that are not in the tree: it would be too large

    def __len__(self) -> int:
        return len(self.above)

    def as_json(self, number: int, depth: int) -> dict[str, Any]:
        """A node of docs/json.md."""
        code = int(self.name[number])
        return {
            "depth": depth,
            **words_of(self.names[code] if code >= 0 else "", int(self.kind[number]), int(DeviceType.CPU)),
            "bytes": int(self.bytes[number]),
            "self_bytes": int(self.own[number]),
            "blocks": int(self.blocks[number]),
        }


def tree_of(table: EventTable, rows: Array, size: Array) -> MemoryTree:
    """The stacks of such allocations, and their sizes in bytes: recorded frames outermost, then the calls.

    Frames are left out where functions were recorded as calls: they are the same. What has neither stands under its own
    name.
    """
    paths = paths_to(table, rows)
    frames = _frames(table, rows, paths)
    caller = paths.above[paths.path]
    leaf = np.where((caller == NO_ROW) & (frames == NO_CODE), paths.path, caller)
    if (frames == NO_CODE).all():
        count = np.bincount(leaf, minlength=len(paths.above))
        return _summed(paths, _engine.sum_by(leaf, len(paths.above), size), count)
    keys = [np.ascontiguousarray(key, dtype=np.int64) for key in (leaf, frames)]
    group, first = _engine.group_rows(keys)
    stacks = _Stacks(table, paths, leaf[first], frames[first])
    return stacks.tree(_engine.sum_by(group, len(first), size), np.bincount(group, minlength=len(first)))


def _frames(table: EventTable, rows: Array, paths: PathsTo) -> Array:
    """Codes of the recorded stacks to show; NO_CODE: none, or an empty one."""
    frames = frames_of(table, rows)
    calls = rules.is_kind(paths.kind, *rules.FUNCTIONS).view(np.uint8)
    within = _engine.nearest_above(paths.above, calls, paths.path) != NO_ROW
    known = table.dictionaries.get("stack")
    used = np.unique(frames[(frames != NO_CODE) & ~within])
    empty = [code for code in used.tolist() if known is None or not known.values[code].strip(_SEPARATOR)]
    found: Array = np.where(within | np.isin(frames, empty), NO_CODE, frames)
    return found


def _summed(paths: PathsTo, own: Array, blocks: Array, left_out: int = 0) -> MemoryTree:
    """The paths in or below which there is something, numbered anew."""
    total, count = (_engine.subtree_sums(np.ascontiguousarray(column), paths.above) for column in (own, blocks))
    kept = np.flatnonzero(count > 0)  # with a path its callers
    place = np.full(len(paths.above) + 1, NO_ROW, dtype=np.int64)  # the last answers for NO_ROW
    place[kept] = np.arange(len(kept))
    above = place[paths.above[kept]]
    return MemoryTree(
        *(above, paths.name[kept], paths.names, paths.kind[kept], total[kept], own[kept], count[kept], left_out)
    )


class _Stacks:
    """Different stacks, each a path of calls (or NO_ROW) below recorded frames (or NO_CODE)."""

    def __init__(self, table: EventTable, paths: PathsTo, leaf: Array, frames: Array) -> None:
        self._paths, self._leaf = paths, leaf
        self._texts = Dictionary(list(paths.names))
        used, self._text = np.unique(frames, return_inverse=True)
        known = table.dictionaries["stack"].values
        codes = [self._codes(known[code] if code != NO_CODE else "") for code in used.tolist()]
        counts = np.array([len(some) for some in codes], dtype=np.int64)
        self._frames = np.concatenate(codes)
        self._begins = np.cumsum(counts) - counts
        self._framed = counts[self._text]  # frames of each stack
        self._depth = _depths(paths.above)
        self._called = np.append(self._depth, -1)[leaf] + 1  # calls of each stack; the last answers for NO_ROW

    def _codes(self, stack: str) -> Array:
        """The frames of a stack that is recorded innermost first, outermost first; nothing for an empty one."""
        frames = [frame for frame in stack.split(_SEPARATOR) if frame][:STACK_FRAMES_MAX]
        return np.array(self._texts.codes(frames[::-1]), dtype=np.int32)

    def tree(self, size: Array, blocks: Array) -> MemoryTree:
        """All of them as one tree; stacks with fewest bytes are left out of one that would be too large."""
        lengths = self._framed + self._called
        order = _engine.argsort(-size)
        chosen = order[np.cumsum(lengths[order]) <= QUERY_ROWS_MAX]
        ends = np.cumsum(lengths[chosen])
        begins = ends - lengths[chosen]
        name, kind = self._rows(chosen, begins, int(lengths[chosen].sum()))
        parent = np.arange(-1, len(name) - 1, dtype=np.int64)
        parent[begins] = NO_ROW
        key, first = _engine.group_rows([name, kind])
        folds = rules.is_kind(kind[first], *rules.FUNCTIONS).view(np.uint8)
        path, above, example, _ = _engine.call_paths(key.astype(np.int32), folds, parent)
        leaf = np.ascontiguousarray(path[ends - 1])
        paths = PathsTo(leaf, above, name[example], self._texts.values, kind[example])
        own, count = (
            _engine.sum_by(leaf, len(above), np.ascontiguousarray(column[chosen])) for column in (size, blocks)
        )
        return _summed(paths, own, count, len(order) - len(chosen))

    def _rows(self, chosen: Array, begins: Array, rows: int) -> tuple[Array, Array]:
        """(name, kind) of each frame and call, stack by stack, outermost first."""
        name, kind = np.empty(rows, dtype=np.int64), np.full(rows, int(Kind.PYTHON_FUNCTION), dtype=np.int64)
        framed = self._framed[chosen]
        within = np.arange(int(framed.sum())) - np.repeat(np.cumsum(framed) - framed, framed)
        name[np.repeat(begins, framed) + within] = self._frames[
            np.repeat(self._begins[self._text[chosen]], framed) + within
        ]
        at, calls = self._leaf[chosen], begins + framed
        while len(at):
            known = at != NO_ROW
            at, calls = at[known], calls[known]
            places = calls + self._depth[at]
            name[places], kind[places] = self._paths.name[at], self._paths.kind[at]
            at = self._paths.above[at]
        return name, kind


def _depths(above: Array) -> Array:
    """How many paths are above each one."""
    depth: Array = (above != NO_ROW).astype(np.int64)
    ancestor = above
    while len(rest := np.flatnonzero(ancestor != NO_ROW)):
        depth[rest] += depth[ancestor[rest]]  # as far as the ancestor's own goes: twice as far each time
        ancestor = np.where(ancestor == NO_ROW, NO_ROW, ancestor[ancestor])
    return depth
