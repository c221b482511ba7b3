"""`diff` by names and by paths beside a twin that goes from call to call, and makes a path for each."""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.events import Kind
from profd.query.diff import diff, without_line
from profd.query.rules import STEP_FOLDED
from profd.segments.reader import TraceReader

from tests.support.tables import Event, store, table_of

FRAMES_MAX = 3
STEP_NS = 1000
Path_ = tuple[str, ...]


@dataclass
class Calls:
    """A trace, and what the twin has to know of each row."""

    events: list[Event] = field(default_factory=list)
    parents: list[int | None] = field(default_factory=list)
    steps: int = 0

    def add(self, name: str, start: int, kind: Kind, ns: int, parent: int | None) -> None:
        """A row behind those that there are."""
        self.parents.append(parent)
        depth = 0 if parent is None else self.events[parent].fields["depth"] + 1
        fields = {"self_time": ns, "parent": parent, "depth": depth}
        self.events.append(Event(name, start, start + ns, kind, 9 if kind == Kind.KERNEL else 0, fields=fields))

    def path(self, row: int, by_path: bool) -> Path_:
        """Its names, outermost first; a deeper call than FRAMES_MAX has that of the one above it."""
        name, parent = self.events[row].name, self.parents[row]
        shown = STEP_FOLDED if name.startswith("ProfilerStep#") else without_line(name)
        if not by_path or parent is None:
            return (shown,)
        above = self.path(parent, by_path)
        return above if self.events[row].fields["depth"] >= FRAMES_MAX else (*above, shown)


@st.composite
def traces(draw: Any) -> Calls:
    calls = Calls(steps=draw(st.integers(0, 4)))
    names = st.sampled_from(["f", "g", "a.py(3): h", "a.py(4): h", ""])
    kinds = st.sampled_from([Kind.CPU_OP, Kind.CPU_OP, Kind.PYTHON_FUNCTION, Kind.KERNEL, Kind.INSTANT])
    for step in range(max(calls.steps, 1)):
        if calls.steps:
            calls.add(f"ProfilerStep#{step}", step * STEP_NS, Kind.USER_ANNOTATION, STEP_NS, None)
        for number in range(draw(st.integers(0, 8))):
            above = draw(st.none() | st.integers(0, max(len(calls.events) - 1, 0))) if calls.events else None
            ns = draw(st.sampled_from([0, 1, 1, 2, 40, 41]))
            calls.add(draw(names), step * STEP_NS + 1 + number, draw(kinds), ns, above)
    return calls


@dataclass
class Spent:
    """Of a path on a device in one trace."""

    ns: list[int]  # of each step
    calls: int = 0

    @property
    def median(self) -> float:
        return statistics.median(self.ns)

    @property
    def spread(self) -> float:
        return 1.4826 * statistics.median(abs(each - self.median) for each in self.ns)


Key = tuple[str, Path_]  # a device, and () for all of it


def spent(calls: Calls, by_path: bool, per_step: bool) -> dict[Key, Spent]:
    steps = calls.steps if per_step else 1
    found: dict[Key, Spent] = defaultdict(lambda: Spent([0] * steps))
    for row, event in enumerate(calls.events):
        if event.kind == Kind.INSTANT:
            continue
        path = calls.path(row, by_path)
        for key in (("CUDA" if event.kind == Kind.KERNEL else "CPU", of) for of in (path, ())):
            found[key].ns[event.start // STEP_NS if per_step else 0] += event.fields["self_time"]
            found[key].calls += 1
    return found


def line(old: Spent | None, new: Spent | None, steps: list[int] | None, errors: float) -> dict[str, Any]:
    a, b = old or Spent([0]), new or Spent([0])
    delta = b.median - a.median
    noise = None
    if steps:
        noise = errors * 1.2533 * (a.spread**2 / steps[0] + b.spread**2 / steps[1]) ** 0.5
    same = abs(delta) <= (noise or 0.0) or round(delta) == 0
    change = "same" if same else "slower" if delta > 0 else "faster"
    return {
        "change": "new" if old is None else "gone" if new is None else change,
        "a_ns": round(a.median),
        "b_ns": round(b.median),
        "delta_ns": round(delta),
        "noise_ns": None if noise is None else round(noise),
        "ratio": round(b.median / a.median, 6) if a.median else None,
        "a_count": round(a.calls / len(a.ns), 3),
        "b_count": round(b.calls / len(b.ns), 3),
    }


def places(sides: tuple[Calls, Calls], by_path: bool) -> dict[Path_, int]:
    """Paths in the order in which they are met, those of callers first."""
    found: dict[Path_, int] = {}
    for calls in sides:
        for row in sorted(range(len(calls.events)), key=lambda row: calls.events[row].fields["depth"]):
            found.setdefault(calls.path(row, by_path), len(found))
    return found


def twin(sides: tuple[Calls, Calls], by_path: bool) -> dict[str, Any]:
    per_step = all(calls.steps for calls in sides)
    steps = [calls.steps for calls in sides]
    known = steps if per_step and min(steps) >= 3 else None
    old, new = (spent(calls, by_path, per_step) for calls in sides)
    met = places(sides, by_path)
    rows = []
    for device, path in {**old, **new}:
        whole = next((one for one in (old.get((device, ())), new.get((device, ()))) if one and one.median), None)
        a, b = old.get((device, path)), new.get((device, path))
        delta = (b.median if b else 0) - (a.median if a else 0)
        rows.append(
            {
                "name": path[-1] if path else "total",
                "path": list(path),
                "device_type": device,
                **line(a, b, known, 3.0 if path else 2.0),
                "share": round(delta / whole.median, 6) if whole else None,
            }
        )
    of_rows = [row for row in rows if row["path"]]
    of_rows.sort(
        key=lambda row: (
            *(row["change"] == "same", -abs(row["delta_ns"]), -row["delta_ns"], row["name"], row["device_type"]),
            met[tuple(row["path"])],
        )
    )
    totals = sorted((row for row in rows if not row["path"]), key=lambda row: row["device_type"])
    return {
        "rows": [{**row, "path": row["path"] if by_path else None} for row in of_rows],
        "totals": [{name: value for name, value in row.items() if name != "path"} for row in totals],
    }


@pytest.mark.parametrize("by", ["path", "name"])
@given(traces(), traces())
def test_as_the_twin(by: str, old: Calls, new: Calls) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("profd.query.diff.DIFF_FRAMES_MAX", FRAMES_MAX)
        first, second = (
            TraceReader(store(table_of(calls.events), Path(folder) / name, rows=7))
            for name, calls in (("a", old), ("b", new))
        )
        found = diff(first, second, by)
        want = twin((old, new), by == "path")
        assert [line for line in found["totals"] if line["name"] == "total"] == want["totals"]
        assert found["rows"] == want["rows"]
        patch.setattr("profd.query.diff.DIFF_ROWS_MAX", 4)
        few = diff(first, second, by)
        assert (few["rows"], few["truncated"]) == (want["rows"][:4], len(want["rows"]) > 4)
