"""Two traces side by side: what is new, gone, slower, faster (`profctl diff`, docs/json.md).

Compared is self time: of host calls what their children did not take, of device
work its duration. A slow function then shows as itself and not as all of its
callers. Where both traces mark steps a step is compared with a step, and where
they have several, a change smaller than the noise between them is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from profd import _engine
from profd.derive.autograd import AUTOGRAD_COLUMNS, FLOW_CATEGORIES, find_links
from profd.derive.steps import Steps
from profd.errors import BadInput, Exhausted
from profd.events import NO_CODE, NO_END, Dictionary, EventTable, Kind
from profd.events.table import Array
from profd.limits import DIFF_CELLS_MAX, DIFF_FRAMES_MAX, DIFF_ROWS_MAX
from profd.query import rules
from profd.query.captured import Captured
from profd.query.changes import PLACES, Changes, Times, keys_of, totals
from profd.query.grouping import by_module
from profd.query.paths import KnownPaths, Paths, joined
from profd.query.recorded import recorded_calls
from profd.query.steps import StepMarks
from profd.query.view import durations
from profd.query.whole import check_size
from profd.segments.reader import TraceReader
from profd.segments.rollups import Rollups

BY: Final = ("name", "path", "module")
NO_MODULE: Final = "(no module)"
STEPS_FOR_NOISE: Final = 3  # fewer do not say how much they differ
_COLUMNS: Final = ("name", "kind", *rules.ASYNC_COLUMNS, "start", "end", "thread", "device_type", "parent", "self_time")
_MODULE_COLUMNS: Final = tuple(dict.fromkeys((*_COLUMNS, "cat", "stack", "module", "linked", *AUTOGRAD_COLUMNS)))
_SPREAD: Final = 1.4826  # makes a standard deviation of a median deviation
# Lines move from version to version: a function is the same function.
_LINE: Final = re.compile(r"(\.py)\(\d+\): ")


@dataclass(frozen=True, slots=True)
class Cells:
    """Times and counts per key, a path and a device type, and step; -1: in no step. Arrays of one length."""

    key: Array
    step: Array
    ns: Array
    count: Array


class Side:
    """One of the two that are compared, a trace or several: times and counts per key and step.

    Of several each step of each is one: what is compared is a step as a rank takes it, or a rank where there are none.
    """

    def __init__(self, cells: Cells, step_ns: Array, traces: int, recorded_ns: int) -> None:
        """`step_ns`: how long the steps took, those of all traces one after the other, as `cells` counts them."""
        self._cells = cells
        self._step_ns = step_ns
        self._traces = traces
        self.steps = len(step_ns)
        self.recorded_ns = recorded_ns

    def __len__(self) -> int:
        return len(self._cells.key)

    def as_table(self, paths: Paths) -> pa.Table:
        """What is kept of a trace: one row of lists. Paths of one name only."""
        cells = self._cells
        words = [name.encode("utf-8", "surrogatepass") for name in paths.names]
        values = (words, cells.key, cells.step, cells.ns, cells.count, self._step_ns, self.recorded_ns)
        return pa.table({field.name: [value] for field, value in zip(KEPT, values, strict=True)}, KEPT)

    @classmethod
    def of_table(cls, table: pa.Table, known: KnownPaths) -> tuple[Side, Paths] | None:
        """The inverse. None for what `as_table` did not write. `known`: paths of tables before."""
        if len(table) != 1 or any(column.null_count for column in table.columns):
            return None
        lists = [_only_list(table.column(name).chunk(0)) for name in KEPT.names[:-1]]
        held = [values for values in lists if values is not None]
        paths = known.of(held[0]) if len(held) == len(lists) else None
        if paths is None:
            return None
        words, *numbers = held
        key, step, ns, count, step_ns = (values.to_numpy() for values in numbers)
        fits = len(key) == len(step) == len(ns) == len(count)
        if not fits or not _within(key, 0, len(words) * PLACES) or not _within(step, -1, len(step_ns)):
            return None
        return cls(Cells(key, step, ns, count), step_ns, 1, table.column("recorded_ns")[0].as_py()), paths

    @classmethod
    def of(cls, reader: TraceReader, by: str) -> tuple[Side, Paths]:
        """Read a trace: its times, and the paths of their keys. Exhausted for one too large to be held at once."""
        check_size(len(reader), "compare exports of a --window of each")
        table = reader.read(_MODULE_COLUMNS if by == "module" else _COLUMNS, args=False)
        marks = StepMarks()
        marks.add(table)
        steps = marks.steps(reader)
        rows = _compared(table)
        paths, path = _modules_of(table, reader) if by == "module" else _paths_of(table, by == "path")
        key = keys_of(path[rows], table.column("device_type")[rows])
        cells = _cells(key, step_of_each(steps, table.columns["start"][rows]), _times(table)[rows])
        return cls(cells, steps.durations, 1, (reader.meta.end_ns or 0) - (reader.meta.start_ns or 0)), paths

    @classmethod
    def of_several(cls, sides: Sequence[Side]) -> Side:
        """All of them as one; their keys are of the same paths."""
        before = np.cumsum([0, *(side.steps for side in sides)])
        steps = [
            np.where(side._cells.step < 0, -1, side._cells.step + at) for side, at in zip(sides, before, strict=False)
        ]
        key, ns, count = (
            np.concatenate([getattr(side._cells, name) for side in sides]) for name in ("key", "ns", "count")
        )
        lasting = np.concatenate([side._step_ns for side in sides])
        recorded = max(side.recorded_ns for side in sides)
        return cls(Cells(key, np.concatenate(steps), ns, count), lasting, len(sides), recorded)

    def renumbered(self, places: Array | None) -> Side:
        """The same with keys of other paths, of which these are the numbers of ours; None: the same."""
        if places is None:
            return self
        key = places[self._cells.key // PLACES] * PLACES + self._cells.key % PLACES
        return Side(replace(self._cells, key=key), self._step_ns, self._traces, self.recorded_ns)

    def measure(self, per_step: bool) -> Times:
        """Times of each key, and of the keys of `total` besides."""
        cells = self._cells
        inside = np.flatnonzero(cells.step >= 0) if per_step else np.arange(len(cells.key))
        step = cells.step[inside] if per_step else np.zeros(len(inside), dtype=np.int64)
        key, values = cells.key[inside], (cells.ns[inside], cells.count[inside])
        steps = self.steps if per_step else 1
        parts = [_measured(each, step, values, steps) for each in (totals(key), key)]
        found = Times(*map(np.concatenate, zip(*parts, strict=True)))
        return found if per_step or self._traces == 1 else _share_of(found, self._traces)

    def step_time(self) -> Times:
        """The length of a step, under the key of a total."""
        every = np.zeros(self.steps, dtype=np.int64)
        own = np.arange(self.steps, dtype=np.int64)
        median, deviation = _engine.typical_of_steps(every, 1, own, self.steps, np.ascontiguousarray(self._step_ns))
        return Times(totals(every[:1]), median, _SPREAD * deviation, np.ones(1))

    def outside_ns(self) -> int:
        """Time in no step."""
        return int(self._cells.ns[self._cells.step < 0].sum())


KEPT: Final = pa.schema(
    [
        pa.field("names", pa.list_(pa.binary())),  # of paths, by number
        *(pa.field(name, pa.list_(pa.int64())) for name in ("key", "step", "ns", "count", "step_ns")),
        pa.field("recorded_ns", pa.int64()),
    ]
)


def _only_list(column: pa.ListArray) -> pa.Array | None:
    """What the only row has, ten times as fast as `flatten`; None where it has nulls, or is not all that lies there."""
    values = column.values
    whole = column.offsets.to_pylist() == [0, len(values)] and not values.offset
    return values if whole and not values.null_count else None


def _within(values: Array, low: int, high: int) -> bool:
    return not len(values) or (int(values.min()) >= low and int(values.max()) < high)


def without_line(name: str) -> str:
    """The name of a function, without the number of its line."""
    return _LINE.sub(r"\1: ", name)


def step_of_each(steps: Steps, start: Array) -> Array:
    """The step in which each row begins; -1: in none."""
    if not len(steps):
        return np.full(len(start), -1, dtype=np.int64)
    step = np.searchsorted(steps.start, start, side="right") - 1
    found: Array = np.where((step >= 0) & (start < steps.end[np.maximum(step, 0)]), step, -1)
    return found


def _share_of(all_of_it: Times, traces: int) -> Times:
    return Times(all_of_it.key, all_of_it.median / traces, np.zeros(len(all_of_it.key)), all_of_it.count / traces)


def _cells(key: Array, step: Array, ns: Array) -> Cells:
    group, first = _engine.group_rows([np.ascontiguousarray(key), np.ascontiguousarray(step)])
    sums = _engine.sum_by(group, len(first), np.ascontiguousarray(ns))
    return Cells(key[first], step[first], sums, np.bincount(group, minlength=len(first)))


def diff(first: TraceReader, second: TraceReader, by: str = "name") -> dict[str, Any]:
    """The answer of docs/json.md, at most DIFF_ROWS_MAX rows, those that changed most first.

    BadInput unless `by` is one of BY.
    """
    _check(by)
    sides = [[_kept(reader.rollups, by, KnownPaths()) or _read(reader, by)] for reader in (first, second)]
    return _answer(sides, by, [reader.meta.source for reader in (first, second)])


def _kept_as(by: str) -> str:
    """What rollups call a side; empty: it is read whenever it is asked for."""
    return f"diff-{by}" if by != "path" else ""


def _kept(rollups: Rollups, by: str, known: KnownPaths) -> tuple[Side, Paths] | None:
    table = rollups.table(_kept_as(by), KEPT) if _kept_as(by) else None
    return None if table is None else Side.of_table(table, known)


def _read(reader: TraceReader, by: str) -> tuple[Side, Paths]:
    """One trace, with paths of its own."""
    side, own = Side.of(reader, by)
    if _kept_as(by):
        reader.rollups.keep_table(_kept_as(by), lambda: side.as_table(own))
    return side, own


def diff_of_captures(first: Captured, second: Captured, by: str = "name") -> dict[str, Any]:
    """The same of all traces of each: a step of any rank is one of the capture's. Without steps: a trace's share."""
    _check(by)
    sides = [_sides_of(capture, by) for capture in (first, second)]
    return {
        "captures": [capture.described() for capture in (first, second)],
        **_answer([own for own, _ in sides], by, [source for _, source in sides]),
    }


def _sides_of(capture: Captured, by: str) -> tuple[list[tuple[Side, Paths]], str]:
    """All traces of a capture, and their source; empty where they have several."""
    known = KnownPaths()
    sides: list[tuple[Side, Paths]] = []
    sources, cells = set(), 0
    looked = capture.each(lambda member: _read(member.open(), by), kept=lambda member: _kept(member.rollups, by, known))
    for member, (side, own) in looked:
        cells += len(side)
        if cells > DIFF_CELLS_MAX:
            raise Exhausted(
                f"the capture {capture.capture} has more than {DIFF_CELLS_MAX:,} times to compare, one for each {by} "
                "in each step of each trace: compare by name, or two of its traces"
            )
        sides.append((side, own))
        sources.add(member.source)
    return sides, sources.pop() if len(sources) == 1 else ""


def _check(by: str) -> None:
    if by not in BY:
        raise BadInput(f"cannot compare by {by!r}; compare by one of: {', '.join(BY)}")


def _answer(traces: list[list[tuple[Side, Paths]]], by: str, sources: list[str]) -> dict[str, Any]:
    """`traces`: those of both that are compared."""
    paths, places = joined([own for each in traces for _, own in each])
    numbers = iter(places)
    sides = [Side.of_several([side.renumbered(next(numbers)) for side, _ in each]) for each in traces]
    per_step = all(side.steps for side in sides)
    steps = [side.steps for side in sides]
    noisy = per_step and min(steps) >= STEPS_FOR_NOISE
    known = steps if noisy else None
    first, second = sides
    changes = Changes.of(first.measure(per_step), second.measure(per_step), known)
    whole = [Changes.of(first.step_time(), second.step_time(), known).step()] if per_step else []
    return {
        "by": by,
        "per": "step" if per_step else "trace",
        "steps": steps,
        "recorded_ns": [side.recorded_ns for side in sides],
        "outside_steps_ns": [side.outside_ns() for side in sides] if per_step else None,
        "message": message_of(unlike(*sources), weakness(per_step, noisy)),
        "sources": [source or None for source in sources],
        "totals": whole + changes.totals(),
        "rows": changes.largest(paths, DIFF_ROWS_MAX, by_path=by == "path"),
        "truncated": changes.rows > DIFF_ROWS_MAX,
    }


def message_of(*remarks: str | None) -> str | None:
    """What stands below a comparison; None: nothing does."""
    return "; ".join(text for text in remarks if text) or None


def weakness(per_step: bool, noisy: bool) -> str | None:
    """Of a comparison. `noisy`: how much steps differ by themselves is known."""
    if not per_step:
        return "not both traces mark steps: what they recorded is compared in all, however long that was"
    if not noisy:
        return f"fewer than {STEPS_FOR_NOISE} steps in a trace: how much is noise is not known"
    return None


def unlike(first: str, second: str) -> str | None:
    """What two sources make doubtful; an empty one is not known."""
    if first == second or not first or not second:
        return None
    return (
        f"warning: A was recorded by {first}, B by {second}, and sources differ in what they record: "
        "what is new or gone may have been there; compare traces of one source"
    )


def _compared(table: EventTable) -> Array:
    """Rows whose self times add up: no marks, no spans that lie beside the stacks, no shadows of annotations."""
    kinds = table.column("kind")
    apart = rules.is_kind(kinds, Kind.GPU_USER_ANNOTATION) | rules.is_async(table)
    return np.flatnonzero(rules.is_work(kinds) & ~apart)


def _times(table: EventTable) -> Array:
    """Ns of each row: self time on the CPU, duration on a device."""
    own = table.column("self_time")
    cpu = np.where(own == NO_END, 0, np.maximum(own, 0))
    times: Array = np.where(rules.is_cpu(table.column("device_type")), cpu, durations(table))
    return times


def _paths_of(table: EventTable, by_path: bool) -> tuple[Paths, Array]:
    """(call paths, or names alone, the path of each row)"""
    words, code = rules.shown_names(rules.names_of(table), table.column("name"))
    names = Dictionary()
    place = np.array(names.codes([*map(without_line, words), ""]), dtype=np.int64)  # the last stands for NO_CODE
    name = place[np.where(code == NO_CODE, len(words), code)]
    if not by_path:
        return Paths.of_names(names.values), name
    return Paths.of_calls(names.values, name, table.column("parent"), DIFF_FRAMES_MAX)


def _modules_of(table: EventTable, reader: TraceReader) -> tuple[Paths, Array]:
    """(modules, each under its path from the outermost one, the module around each row)"""
    links = find_links(table, reader.flows(FLOW_CATEGORIES), reader.tracks)
    labels = by_module(table, recorded_calls(table).parent, links)
    names = Dictionary()
    number = np.array(names.codes([text or NO_MODULE for text in labels.texts]), dtype=np.int64)
    return Paths.of_names(names.values), number[labels.code]


def _measured(key: Array, step: Array, values: tuple[Array, Array], steps: int) -> tuple[Array, ...]:
    """The columns of `Times`. `values`: ns and calls."""
    group, first = _engine.group_rows([np.ascontiguousarray(key)])
    ns, counts = map(np.ascontiguousarray, values)
    median, deviation = _engine.typical_of_steps(group, len(first), np.ascontiguousarray(step), steps, ns)
    count = _engine.sum_by(group, len(first), counts) / steps
    order = np.argsort(key[first])
    return key[first[order]], median[order], _SPREAD * deviation[order], count[order]
