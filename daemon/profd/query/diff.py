"""Two traces side by side: what is new, gone, slower, faster (`profctl diff`, docs/json.md).

Compared is self time: of host calls what their children did not take, of device
work its duration. A slow function then shows as itself and not as all of its
callers. Where both traces mark steps a step is compared with a step, and where
they have several, a change smaller than the noise between them is none.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from profd import _engine
from profd.derive.autograd import AUTOGRAD_COLUMNS, FLOW_CATEGORIES, find_links
from profd.errors import BadInput
from profd.events import NO_CODE, NO_END, NO_ROW, DeviceType, EventTable, Kind
from profd.events.table import Array
from profd.limits import DIFF_FRAMES_MAX, DIFF_ROWS_MAX
from profd.query import rules
from profd.query.grouping import by_module
from profd.query.recorded import recorded_calls
from profd.query.steps import StepMarks
from profd.query.view import durations
from profd.query.whole import check_size
from profd.segments.reader import TraceReader

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

    def on(self, below: int, name: str) -> int:
        """The number of a name on top of a path; `below` -1: on top of nothing."""
        entry = (below, name)
        number = self._known.setdefault(entry, len(self._entries))
        if number == len(self._entries):
            self._entries.append(entry)
        return number

    def frames(self, path: int) -> list[str]:
        """Its names, outermost first."""
        frames = []
        while path != _ROOT:
            path, name = self._entries[path]
            frames.append(name)
        return frames[::-1]


@dataclass(frozen=True, slots=True)
class Measured:
    """A time per step (or in all, where steps are not compared), in ns."""

    median: float = 0.0
    spread: float = 0.0  # as a standard deviation
    count: float = 0.0  # calls per step, or in all


class Side:
    """One of the two traces: times and counts per (path, device type)."""

    def __init__(self, reader: TraceReader, paths: Paths, by: str) -> None:
        """Read it. Exhausted for a trace too large to be held at once."""
        check_size(len(reader), "compare exports of a --window of each")
        table = reader.read(_MODULE_COLUMNS if by == "module" else _COLUMNS, args=False)
        marks = StepMarks()
        marks.add(table)
        self.steps = marks.steps(reader)
        rows = _compared(table)
        self._start = table.columns["start"][rows]
        self._value = _times(table)[rows]
        path = _modules_of(table, reader, paths) if by == "module" else _paths_of(table, paths, by == "path")
        path = path[rows]
        self._key = path * _PLACES + table.column("device_type")[rows]
        self.recorded_ns = (reader.meta.end_ns or 0) - (reader.meta.start_ns or 0)

    def measure(self, per_step: bool) -> dict[int, Measured]:
        """Each key with its times; the keys of `total` besides."""
        rows, step, steps = self._place(per_step)
        found: dict[int, Measured] = {}
        for key in (self._key[rows], -1 - self._key[rows] % _PLACES):
            found |= _measured(key, step, self._value[rows], steps)
        return found

    def step_time(self) -> Measured:
        """The length of a step."""
        return _of(self.steps.durations.astype(np.float64), len(self.steps), len(self.steps))

    def outside_ns(self) -> int:
        """Time in no step."""
        rows, _, _ = self._place(True)
        return int(self._value.sum()) - int(self._value[rows].sum())

    def _place(self, per_step: bool) -> tuple[Array, Array, int]:
        """(rows that count, the step of each, number of steps)."""
        if not per_step:
            return np.arange(len(self._start)), np.zeros(len(self._start), dtype=np.int64), 1
        step = np.searchsorted(self.steps.start, self._start, side="right") - 1
        rows = np.flatnonzero((step >= 0) & (self._start < self.steps.end[np.maximum(step, 0)]))
        return rows, step[rows], len(self.steps)


def total(device_type: int) -> int:
    """The key of everything on a type of device in `Side.measure`."""
    return -1 - device_type


def diff(first: TraceReader, second: TraceReader, by: str = "name") -> dict[str, Any]:
    """The answer of docs/json.md, at most DIFF_ROWS_MAX rows, those that changed most first.

    BadInput unless `by` is one of BY.
    """
    if by not in BY:
        raise BadInput(f"cannot compare by {by!r}; compare by one of: {', '.join(BY)}")
    paths = Paths()
    sides = [Side(reader, paths, by) for reader in (first, second)]
    per_step = all(len(side.steps) for side in sides)
    steps = [len(side.steps) for side in sides]
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

    unlike = _unlike(first.meta.source, second.meta.source)
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
        "message": " ".join(text for text in (_message(per_step, noisy), unlike) if text) or None,
        "sources": [reader.meta.source or None for reader in (first, second)],
        "totals": totals,
        "rows": rows[:DIFF_ROWS_MAX],
        "truncated": len(rows) > DIFF_ROWS_MAX,
    }


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    """The largest change first; of equal ones what got slower."""
    delta = row["delta_ns"]
    return row["change"] == "same", -abs(delta), -delta, row["name"], row["device_type"]


def _message(per_step: bool, noisy: bool) -> str | None:
    if not per_step:
        return "not both traces mark steps: what they recorded is compared in all, however long that was"
    if not noisy:
        return f"fewer than {STEPS_FOR_NOISE} steps in a trace: how much is noise is not known"
    return None


def _unlike(first: str, second: str) -> str | None:
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
        "a_count": _number(old.count),
        "b_count": _number(new.count),
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


def _number(count: float) -> int | float:
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
    names = [_LINE.sub(r"\1: ", word) for word in words] + [""]  # the last stands for NO_CODE
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


def _measured(key: Array, step: Array, value: Array, steps: int) -> dict[int, Measured]:
    if not len(key):
        return {}
    group, first = _engine.group_rows([np.ascontiguousarray(key), np.ascontiguousarray(step)])
    sums = _engine.sum_by(group, len(first), np.ascontiguousarray(value)).astype(np.float64)
    counts = np.bincount(group, minlength=len(first))
    cell = key[first]
    order = np.argsort(cell, kind="stable")
    found = {}
    for cells in np.split(order, np.flatnonzero(np.diff(cell[order])) + 1):
        found[int(cell[cells[0]])] = _of(sums[cells], int(counts[cells].sum()), steps)
    return found


def _of(seen: Array, count: int, steps: int) -> Measured:
    """Of the times in the steps that have any; in the others it is 0."""
    if steps == 1:
        return Measured(float(seen.sum()), 0.0, count)
    values = np.zeros(steps)
    values[: len(seen)] = seen
    median = float(np.median(values))
    return Measured(median, _SPREAD * float(np.median(np.abs(values - median))), count / steps)
