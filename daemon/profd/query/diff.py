"""Two traces side by side: what is new, gone, slower, faster (`profctl diff`, docs/json.md).

Compared is self time: of host calls what their children did not take, of device
work its duration. A slow function then shows as itself and not as all of its
callers. Where both traces mark steps a step is compared with a step, and where
they have several, a change smaller than the noise between them is none.
"""

from __future__ import annotations

import math
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
from profd.events import NO_CODE, NO_END, NO_ROW, DeviceType, EventTable, Kind
from profd.events.table import Array
from profd.limits import DIFF_CELLS_MAX, DIFF_FRAMES_MAX, DIFF_ROWS_MAX
from profd.query import rules
from profd.query.captured import Captured, Member
from profd.query.grouping import by_module
from profd.query.recorded import recorded_calls
from profd.query.steps import StepMarks
from profd.query.view import durations
from profd.query.whole import check_size
from profd.segments.reader import TraceReader
from profd.segments.rollups import Rollups

BY: Final = ("name", "path", "module")
NO_MODULE: Final = "(no module)"
STEPS_FOR_NOISE: Final = 3  # fewer do not say how much they differ
_COLUMNS: Final = (
    "name",
    "kind",
    *rules.ASYNC_COLUMNS,
    "start",
    "end",
    "thread",
    "device_type",
    "parent",
    "depth",
    "self_time",
)
_MODULE_COLUMNS: Final = tuple(dict.fromkeys((*_COLUMNS, "cat", "stack", "module", "linked", *AUTOGRAD_COLUMNS)))
_DEVICE_LABELS: Final = {int(device): device.label for device in DeviceType}
_PLACES: Final = 32  # device types
_ROOT: Final = -1
_SPREAD: Final = 1.4826  # makes a standard deviation of a median deviation
_MEDIAN_ERROR: Final = 1.2533  # of a median, in standard errors of a mean
# Standard errors that a change must exceed. There are hundreds of rows, and none of them should stand out by chance.
_TOTAL_ERRORS: Final = 2.0
_ROW_ERRORS: Final = 3.0
# Lines move from version to version: a function is the same function.
_LINE: Final = re.compile(r"(\.py)\(\d+\): ")


class Paths:
    """Call paths of both traces, numbered: a name on top of another path."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], int] = {}
        self._entries: list[tuple[int, str]] = []
        self._taken_up: dict[Paths, Array | None] = {}

    @classmethod
    def of_names(cls, names: Sequence[str]) -> Paths | None:
        """Paths of one name each, numbered as these are; None where one comes twice."""
        paths = cls()
        return paths if [paths.on(_ROOT, name) for name in names] == [*range(len(names))] else None

    def on(self, below: int, name: str) -> int:
        """The number of a name on top of a path; `below` -1: on top of nothing."""
        entry = (below, name)
        number = self._known.setdefault(entry, len(self._entries))
        if number == len(self._entries):
            self._entries.append(entry)
        return number

    def take_up(self, others: Paths) -> Array | None:
        """The numbers here of all paths there, which come to no others meanwhile, by their numbers there.

        None: they are the same.
        """
        if others in self._taken_up:  # those of many traces are the same
            return self._taken_up[others]
        places = np.empty(len(others._entries), dtype=np.int64)
        for number, (below, name) in enumerate(others._entries):  # a path comes after the one below it
            places[number] = self.on(_ROOT if below == _ROOT else int(places[below]), name)
        same = bool((places == np.arange(len(places))).all())
        return self._taken_up.setdefault(others, None if same else places)

    def names(self) -> list[str]:
        """The name on top of each."""
        return [name for _, name in self._entries]

    def frames(self, path: int) -> list[str]:
        """Its names, outermost first."""
        frames = []
        while path != _ROOT:
            path, name = self._entries[path]
            frames.append(name)
        return frames[::-1]


class KnownPaths:
    """Paths of one name each, by what was kept of them: those of many traces are the same, and made once."""

    def __init__(self) -> None:
        self._by_words: dict[tuple[int | bytes, ...], Paths | None] = {}

    def of(self, words: pa.Array) -> Paths | None:
        """Paths numbered as these words are, which lack none; None where one is no text, or comes twice."""
        # The bytes tell at once what a comparison of two hundred words would.
        same = len(words), *(buffer.to_pybytes() if buffer else b"" for buffer in words.buffers()[1:])
        if same not in self._by_words:
            self._by_words[same] = _paths_of_words(words)
        return self._by_words[same]


def _paths_of_words(words: pa.Array) -> Paths | None:
    try:
        return Paths.of_names([word.decode("utf-8", "surrogatepass") for word in words.to_pylist()])
    except UnicodeDecodeError:
        return None


@dataclass(frozen=True, slots=True)
class Measured:
    """A time per step (or in all, where steps are not compared), in ns."""

    median: float = 0.0
    spread: float = 0.0  # as a standard deviation
    count: float = 0.0  # calls per step, or in all


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
        words = [name.encode("utf-8", "surrogatepass") for name in paths.names()]
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
        if not fits or not _within(key, 0, len(words) * _PLACES) or not _within(step, -1, len(step_ns)):
            return None
        return cls(Cells(key, step, ns, count), step_ns, 1, table.column("recorded_ns")[0].as_py()), paths

    @classmethod
    def of(cls, reader: TraceReader, paths: Paths, by: str) -> Side:
        """Read a trace. Exhausted for one too large to be held at once."""
        check_size(len(reader), "compare exports of a --window of each")
        table = reader.read(_MODULE_COLUMNS if by == "module" else _COLUMNS, args=False)
        marks = StepMarks()
        marks.add(table)
        steps = marks.steps(reader)
        rows = _compared(table)
        path = _modules_of(table, reader, paths) if by == "module" else _paths_of(table, paths, by == "path")
        # A damaged file may name any type: those beyond are one, "other".
        key = path[rows] * _PLACES + np.minimum(table.column("device_type")[rows], _PLACES - 1)
        cells = _cells(key, step_of_each(steps, table.columns["start"][rows]), _times(table)[rows])
        return cls(cells, steps.durations, 1, (reader.meta.end_ns or 0) - (reader.meta.start_ns or 0))

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

    def renumbered(self, own: Paths, paths: Paths) -> Side:
        """The same with keys of other paths, which take up those that they lack."""
        places = paths.take_up(own)
        if places is None:
            return self
        key = places[self._cells.key // _PLACES] * _PLACES + self._cells.key % _PLACES
        return Side(replace(self._cells, key=key), self._step_ns, self._traces, self.recorded_ns)

    def measure(self, per_step: bool) -> dict[int, Measured]:
        """Each key with its times; the keys of `total` besides."""
        cells = self._cells
        inside = np.flatnonzero(cells.step >= 0) if per_step else np.arange(len(cells.key))
        step = cells.step[inside] if per_step else np.zeros(len(inside), dtype=np.int64)
        found: dict[int, Measured] = {}
        for key in (cells.key[inside], -1 - cells.key[inside] % _PLACES):
            found |= _measured(key, step, (cells.ns[inside], cells.count[inside]), self.steps if per_step else 1)
        return (
            found
            if per_step or self._traces == 1
            else {key: _share_of(one, self._traces) for key, one in found.items()}
        )

    def step_time(self) -> Measured:
        """The length of a step."""
        every = np.zeros(self.steps, dtype=np.int64)
        own = np.arange(self.steps, dtype=np.int64)
        (median,), (deviation,) = _engine.typical_of_steps(
            every, 1, own, self.steps, np.ascontiguousarray(self._step_ns)
        )
        return Measured(float(median), _SPREAD * float(deviation), 1)

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


def _share_of(all_of_it: Measured, traces: int) -> Measured:
    return Measured(all_of_it.median / traces, 0.0, all_of_it.count / traces)


def _cells(key: Array, step: Array, ns: Array) -> Cells:
    group, first = _engine.group_rows([np.ascontiguousarray(key), np.ascontiguousarray(step)])
    sums = _engine.sum_by(group, len(first), np.ascontiguousarray(ns))
    return Cells(key[first], step[first], sums, np.bincount(group, minlength=len(first)))


def total(device_type: int) -> int:
    """The key of everything on a type of device in `Side.measure`."""
    return -1 - device_type


def diff(first: TraceReader, second: TraceReader, by: str = "name") -> dict[str, Any]:
    """The answer of docs/json.md, at most DIFF_ROWS_MAX rows, those that changed most first.

    BadInput unless `by` is one of BY.
    """
    _check(by)
    paths = Paths()
    sides = []
    for reader in (first, second):
        side, own = _kept(reader.rollups, by, KnownPaths()) or _read(reader, by)
        sides.append(side.renumbered(own, paths))
    return _answer(sides, paths, by, [reader.meta.source for reader in (first, second)])


def _kept_as(by: str) -> str:
    """What rollups call a side; empty: it is read whenever it is asked for."""
    return f"diff-{by}" if by != "path" else ""


def _kept(rollups: Rollups, by: str, known: KnownPaths) -> tuple[Side, Paths] | None:
    table = rollups.table(_kept_as(by), KEPT) if _kept_as(by) else None
    return None if table is None else Side.of_table(table, known)


def _read(reader: TraceReader, by: str) -> tuple[Side, Paths]:
    """One trace, with paths of its own."""
    own = Paths()
    side = Side.of(reader, own, by)
    if _kept_as(by):
        reader.rollups.keep_table(_kept_as(by), lambda: side.as_table(own))
    return side, own


def diff_of_captures(first: Captured, second: Captured, by: str = "name") -> dict[str, Any]:
    """The same of all traces of each: a step of any rank is one of the capture's. Without steps: a trace's share."""
    _check(by)
    paths = Paths()
    sides = [_side_of(capture, paths, by) for capture in (first, second)]
    return {
        "captures": [capture.described() for capture in (first, second)],
        **_answer([side for side, _ in sides], paths, by, [source for _, source in sides]),
    }


def _side_of(capture: Captured, paths: Paths, by: str) -> tuple[Side, str]:
    """All traces of a capture, and their source; empty where they have several."""

    def look(member: Member) -> tuple[Side, Paths]:
        return _read(member.open(), by)  # threads share no paths

    known = KnownPaths()
    sides, sources, cells = [], set(), 0
    for member, (side, own) in capture.each(look, kept=lambda member: _kept(member.rollups, by, known)):
        cells += len(side)
        if cells > DIFF_CELLS_MAX:
            raise Exhausted(
                f"the capture {capture.capture} has more than {DIFF_CELLS_MAX:,} times to compare, one for each {by} "
                "in each step of each trace: compare by name, or two of its traces"
            )
        sides.append(side.renumbered(own, paths))
        sources.add(member.source)
    return Side.of_several(sides), sources.pop() if len(sources) == 1 else ""


def _check(by: str) -> None:
    if by not in BY:
        raise BadInput(f"cannot compare by {by!r}; compare by one of: {', '.join(BY)}")


def _answer(sides: list[Side], paths: Paths, by: str, sources: list[str]) -> dict[str, Any]:
    per_step = all(side.steps for side in sides)
    steps = [side.steps for side in sides]
    noisy = per_step and min(steps) >= STEPS_FOR_NOISE
    known = steps if noisy else None
    before, after = (side.measure(per_step) for side in sides)
    nothing = Measured()

    def line(key: int) -> dict[str, Any]:
        place = key % _PLACES if key >= 0 else -1 - key
        old, new = before.get(key, nothing), after.get(key, nothing)
        whole = before.get(total(place), nothing).median or after.get(total(place), nothing).median
        return {
            "device_type": _DEVICE_LABELS.get(place, "other"),
            **_compared_values(old, new, known, _ROW_ERRORS if key >= 0 else _TOTAL_ERRORS),
            "share": _ratio(new.median - old.median, whole),
        }

    warning = unlike(*sources)
    keys = sorted({*before, *after})
    totals = [{"name": "total", **line(key)} for key in reversed(keys) if key < 0]
    if per_step:
        old, new = (side.step_time() for side in sides)
        values = _compared_values(old, new, known, _TOTAL_ERRORS)
        step_line = {"name": "step", "device_type": None, **values}
        totals.insert(0, {**step_line, "share": _ratio(new.median - old.median, old.median)})
    rows = []
    for key in keys:
        if key >= 0:
            frames = paths.frames(key // _PLACES)
            rows.append({"name": frames[-1], "path": frames if by == "path" else None, **line(key)})
    rows.sort(key=_order)
    return {
        "by": by,
        "per": "step" if per_step else "trace",
        "steps": steps,
        "recorded_ns": [side.recorded_ns for side in sides],
        "outside_steps_ns": [side.outside_ns() for side in sides] if per_step else None,
        "message": " ".join(text for text in (weakness(per_step, noisy), warning) if text) or None,
        "sources": [source or None for source in sources],
        "totals": totals,
        "rows": rows[:DIFF_ROWS_MAX],
        "truncated": len(rows) > DIFF_ROWS_MAX,
    }


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    """The largest change first; of equal ones what got slower."""
    delta = row["delta_ns"]
    return row["change"] == "same", -abs(delta), -delta, row["name"], row["device_type"]


def weakness(per_step: bool, noisy: bool) -> str | None:
    """Of a comparison, as a sentence. `noisy`: how much steps differ by themselves is known."""
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


def _compared_values(old: Measured, new: Measured, steps: list[int] | None, errors: float) -> dict[str, Any]:
    delta = new.median - old.median
    noise = None
    if steps is not None:
        noise = errors * _MEDIAN_ERROR * math.sqrt(old.spread**2 / steps[0] + new.spread**2 / steps[1])
    return {
        "change": _change(old, new, delta, noise or 0.0),
        "a_ns": round(old.median),
        "b_ns": round(new.median),
        "delta_ns": round(delta),
        "noise_ns": None if noise is None else round(noise),
        "ratio": _ratio(new.median, old.median),
        "a_count": number(old.count),
        "b_count": number(new.count),
    }


def _change(old: Measured, new: Measured, delta: float, noise: float) -> str:
    if not old.count:
        return "new"
    if not new.count:
        return "gone"
    if abs(delta) <= noise or round(delta) == 0:
        return "same"
    return "slower" if delta > 0 else "faster"


def _ratio(value: float, whole: float) -> float | None:
    return round(value / whole, 6) if whole else None


def number(count: float) -> int | float:
    """Calls per step: whole where they are."""
    return int(count) if count == int(count) else round(count, 3)


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


def _paths_of(table: EventTable, paths: Paths, by_path: bool) -> Array:
    """The path of each row: its call path, or its name alone."""
    words, code = rules.shown_names(rules.names_of(table), table.column("name"))
    names = [without_line(word) for word in words] + [""]  # the last stands for NO_CODE
    if not by_path:
        numbers = np.array([paths.on(_ROOT, name) for name in names], dtype=np.int64)
        return numbers[code]
    return _climb(table, names, np.where(code == NO_CODE, len(names) - 1, code), paths)


def _modules_of(table: EventTable, reader: TraceReader, paths: Paths) -> Array:
    """The module around each row, under its path from the outermost module."""
    links = find_links(table, reader.flows(FLOW_CATEGORIES), reader.tracks)
    labels = by_module(table, recorded_calls(table).parent, links)
    numbers = np.array([paths.on(_ROOT, text or NO_MODULE) for text in labels.texts], dtype=np.int64)
    return numbers[labels.code]


def _climb(table: EventTable, names: list[str], code: Array, paths: Paths) -> Array:
    path = np.full(len(table), _ROOT, dtype=np.int64)
    depth, parent = table.column("depth"), table.column("parent")
    order = np.argsort(depth, kind="stable")
    cuts = np.flatnonzero(np.diff(depth[order])) + 1
    for level, rows in enumerate(np.split(order, cuts)):
        below = np.where(parent[rows] == NO_ROW, _ROOT, path[parent[rows]])
        if level >= DIFF_FRAMES_MAX:
            path[rows] = below  # charged to the frame at that depth
            continue
        group, first = _engine.group_rows([np.ascontiguousarray(below), code[rows].astype(np.int64)])
        numbers = [paths.on(int(below[at]), names[code[rows[at]]]) for at in first.tolist()]
        path[rows] = np.array(numbers, dtype=np.int64)[group]
    return path


def _measured(key: Array, step: Array, values: tuple[Array, Array], steps: int) -> dict[int, Measured]:
    """`values`: ns and calls."""
    if not len(key):
        return {}
    group, first = _engine.group_rows([np.ascontiguousarray(key)])
    ns, counts = map(np.ascontiguousarray, values)
    median, deviation = _engine.typical_of_steps(group, len(first), np.ascontiguousarray(step), steps, ns)
    count = _engine.sum_by(group, len(first), counts) / steps
    columns = (column.tolist() for column in (key[first], median, _SPREAD * deviation, count))
    return {cell: Measured(*values) for cell, *values in zip(*columns, strict=True)}
