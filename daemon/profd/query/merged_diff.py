"""The call trees of two traces, or captures, as one: each path with its time in both (docs/json.md).

A box of a flame graph is as wide as what stands on it, so its times must add up. Means of steps do, the medians of
`diff` do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from profd import _engine
from profd.derive.steps import STEP_COLUMNS
from profd.errors import Exhausted
from profd.events import NO_CODE, NO_ROW, Dictionary
from profd.events.table import Array
from profd.limits import MERGED_PATHS_MAX, MERGED_SIDE_PATHS_MAX
from profd.query import rules
from profd.query.captured import Captured, Member
from profd.query.changes import number
from profd.query.diff import message_of, step_of_each, unlike, weakness, without_line
from profd.query.hottest import hottest
from profd.query.merged import calls_of, until_of
from profd.query.merged_paths import times_of, words_of
from profd.query.part import Part, of_job
from profd.query.steps import StepMarks
from profd.query.whole import check_size
from profd.segments.reader import TraceReader

_OWN, _DEVICE, _COUNT = range(3)  # sums: ns on threads, ns of work on devices, calls
_SUMS: Final = 3
_WHOLE: Final = Part()


@dataclass(frozen=True, slots=True)
class _Tree:
    """Paths, each once, of one trace or several. A column for each path."""

    names: list[str]
    name: Array  # index of `names`, or NO_CODE
    kind: Array
    device_type: Array
    above: Array  # path of the caller, or NO_ROW
    sums: (
        Array  # rows: those above of what began in a step, then of what began in none; of two sides one after the other
    )

    def __len__(self) -> int:
        return len(self.above)


@dataclass(frozen=True, slots=True)
class _MergedSide:
    """One of the two that are compared."""

    tree: _Tree
    steps: int
    traces: int
    source: str  # empty: several

    def outside_ns(self) -> int:
        """Time in no step."""
        return int(self.tree.sums[[_SUMS + _OWN, _SUMS + _DEVICE]].sum())


def merged_diff(first: TraceReader, second: TraceReader, *, limit: int) -> dict[str, Any]:
    """The answer of docs/json.md: at most `limit` paths (0, or more than MERGED_PATHS_MAX: that many).

    Exhausted for a trace that is too large to be held at once.
    """
    return _answer([_side_of(reader) for reader in (first, second)], limit)


def merged_diff_of_captures(first: Captured, second: Captured, *, limit: int) -> dict[str, Any]:
    """The same of all traces of each: a step of any rank is one of the capture's. Without steps: a trace's share."""
    sides = [_side_of_capture(capture) for capture in (first, second)]
    return {"captures": [capture.described() for capture in (first, second)], **_answer(sides, limit)}


def _side_of_capture(capture: Captured) -> _MergedSide:
    def look(member: Member) -> _MergedSide:
        return _side_of(member.open())

    sides: list[_MergedSide] = []
    for _, side in capture.each(look):
        sides.append(side)
        if sum(len(one.tree) for one in sides) > MERGED_SIDE_PATHS_MAX:
            raise Exhausted(
                f"the traces of the capture {capture.capture} have more than {MERGED_SIDE_PATHS_MAX:,} paths of calls "
                "together: compare two of its traces"
            )
    sources = {side.source for side in sides}
    tree = _joined([side.tree for side in sides])
    return _MergedSide(tree, sum(side.steps for side in sides), len(sides), sources.pop() if len(sources) == 1 else "")


def _side_of(reader: TraceReader) -> _MergedSide:
    check_size(len(reader), "compare exports of a --window of each")
    marks = StepMarks()
    for stretch in reader.iterate(STEP_COLUMNS, args=False):
        marks.add(stretch)
    steps = marks.steps(reader)
    table, threads = calls_of(reader, of_job(reader, _WHOLE))
    parent = np.ascontiguousarray(table.column("parent"))
    lasting, own = times_of(table, threads, parent, until_of(reader, _WHOLE))
    on_device = ~rules.is_cpu(table.column("device_type"))
    values = np.stack([np.where(on_device, 0, own), np.where(on_device, lasting, 0), np.ones_like(own)])
    inside = step_of_each(steps, table.columns["start"]) >= 0
    words, code = rules.shown_names(rules.names_of(table), table.column("name"))
    names = Dictionary([])
    code = np.array([*names.codes([without_line(word) for word in words]), NO_CODE], dtype=np.int64)[code]
    sums = np.concatenate([values * inside, values * ~inside])
    columns = (code, table.column("kind"), table.column("device_type"), parent)
    return _MergedSide(_folded(names.values, *columns, sums), len(steps), 1, reader.meta.source)


def _folded(names: list[str], name: Array, kind: Array, device_type: Array, above: Array, sums: Array) -> _Tree:
    """Rows of one path together, by the rules of `merged_tree`. What it made of several trees it takes as well."""
    key, first = _engine.group_rows([column.astype(np.int64) for column in (name, kind, device_type)])
    folds = rules.is_kind(kind[first], *rules.FUNCTIONS).view(np.uint8)
    path, over, example, _ = _engine.call_paths(key.astype(np.int32), folds, above)
    summed = np.array([_engine.sum_by(path, len(over), np.ascontiguousarray(values)) for values in sums])
    return _Tree(names, name[example], kind[example], device_type[example], over, summed)


def _joined(trees: Sequence[_Tree]) -> _Tree:
    """All of them as one."""
    names = Dictionary([])
    codes = [np.array([*names.codes(tree.names), NO_CODE], dtype=np.int64)[tree.name] for tree in trees]
    before = np.cumsum([0, *map(len, trees)])
    above = [np.where(tree.above == NO_ROW, NO_ROW, tree.above + at) for tree, at in zip(trees, before, strict=False)]
    kind, device_type = (
        np.concatenate([getattr(tree, column) for tree in trees]) for column in ("kind", "device_type")
    )
    sums = np.concatenate([tree.sums for tree in trees], axis=1)
    return _folded(names.values, np.concatenate(codes), kind, device_type, np.concatenate(above), sums)


def _beside(sides: Sequence[_MergedSide], per_step: bool) -> tuple[_Tree, Array]:
    """(both as one tree without what is not compared, for each side the three sums of each path)."""
    kept = [side.tree.sums[:_SUMS] if per_step else side.tree.sums[:_SUMS] + side.tree.sums[_SUMS:] for side in sides]
    none = [np.zeros_like(values) for values in kept]
    both = (np.concatenate([kept[0], none[0]]), np.concatenate([none[1], kept[1]]))
    tree = _joined([replace(side.tree, sums=values) for side, values in zip(sides, both, strict=True)])
    calls = _engine.subtree_sums(tree.sums[_COUNT] + tree.sums[_SUMS + _COUNT], tree.above)
    rows = np.flatnonzero(calls > 0)
    place = np.full(len(tree) + 1, NO_ROW, dtype=np.int64)  # the last answers for NO_ROW
    place[rows] = np.arange(len(rows))
    columns = (tree.name[rows], tree.kind[rows], tree.device_type[rows], place[tree.above[rows]], tree.sums[:, rows])
    return _Tree(tree.names, *columns), columns[-1].reshape(len(sides), _SUMS, len(rows))


def _answer(sides: Sequence[_MergedSide], limit: int) -> dict[str, Any]:
    per_step = all(side.steps for side in sides)
    tree, sums = _beside(sides, per_step)
    shares = [side.steps if per_step else side.traces for side in sides]
    own = np.maximum(sums[:, _OWN], 0)
    time, device = (
        np.array([_engine.subtree_sums(np.ascontiguousarray(values), tree.above) for values in of_sides])
        for of_sides in (own, sums[:, _DEVICE])
    )
    per = np.array(shares)[:, None]
    weight = (np.maximum(time, device) // per).max(axis=0)
    shown = hottest(tree.above, weight, min(limit or MERGED_PATHS_MAX, MERGED_PATHS_MAX))

    def node(path: int, depth: int) -> dict[str, Any]:
        code = int(tree.name[path])
        words = words_of(tree.names[code] if code >= 0 else "", int(tree.kind[path]), int(tree.device_type[path]))
        found: dict[str, Any] = {"depth": depth, **words}
        for place, (side, share) in enumerate(zip("ab", shares, strict=True)):
            found |= {
                f"{side}_ns": _per(int(time[place, path]), share),
                f"{side}_self_ns": _per(int(own[place, path]), share),
                f"{side}_device_ns": _per(int(device[place, path]), share),
                f"{side}_count": number(int(sums[place, _COUNT, path]) / share),
            }
        return found

    return {
        "per": "step" if per_step else "trace",
        "steps": [side.steps for side in sides],
        "outside_steps_ns": [side.outside_ns() for side in sides] if per_step else None,
        "message": message_of(unlike(*(side.source for side in sides)), weakness(per_step, True)),
        "sources": [side.source or None for side in sides],
        "paths": len(tree),
        "left_out": len(tree) - len(shown),
        "nodes": [node(*one) for one in shown],
    }


def _per(total: int, share: int) -> int:
    """The mean, to the nearest ns."""
    return (2 * total + share) // (2 * share)
