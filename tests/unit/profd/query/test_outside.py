"""What samples saw of a thread while no operator ran on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.events import EventTable, Kind, Tracks
from profd.query import open_trace
from profd.query.outside import Outside
from profd.segments.meta import TraceMeta

from tests.support.tables import Event, store, table_of

TRACKS = Tracks(
    processes=[{"id": 7}],
    threads=[{"id": 7, "process": 0}, {"id": "samples of 7", "process": 0, "name": "x (samples)"}],
)
SAMPLE = Kind.SAMPLE


def outside(events: list[Event], parents: list[int], window: tuple[int, int] = (0, 1000), at_once: int = 999) -> Any:
    meta = TraceMeta(window_start_ns=window[0], window_end_ns=window[1], tracks=TRACKS)
    found = Outside(meta)
    ordered = sorted(zip(events, parents, strict=True), key=lambda pair: pair[0].start)
    whole = table_of([Event(**{**vars(event), "fields": {"parent": parent}}) for event, parent in ordered])
    for first in range(0, len(whole), at_once):
        columns = {name: values[first : first + at_once] for name, values in whole.columns.items()}
        found.add(EventTable(columns, whole.dictionaries, {}, first))
    return found.of(0)


def test_operators_and_inner_functions_are_taken_off() -> None:
    events = [
        Event("loop", 0, None, SAMPLE, 1),
        Event("metric", 100, 500, SAMPLE, 1),
        Event("aten::mm", 400, 600),
        Event("aten::addmm", 450, 460),  # within
        Event("call", 900, 950, Kind.PYTHON_FUNCTION),
    ]
    assert outside(events, [-1, 0, -1, -1, -1]) == [
        {"name": "loop", "wall_ns": 1000 - 300 - 200 - 50},
        {"name": "metric", "wall_ns": 300},
    ]


def test_a_trace_without_samples_says_nothing(tmp_path: Path) -> None:
    meta = TraceMeta(
        window_start_ns=0, window_end_ns=9, tracks=Tracks(processes=[{"id": 7}], threads=[{"id": 7, "process": 0}])
    )
    assert not Outside(meta).wanted
    assert Outside(meta).of(0) is None


def test_the_summary_has_them(tmp_path: Path) -> None:
    events = [Event("loop", 0, 1000, SAMPLE, 1), Event("aten::mm", 0, 400)]
    path = store(table_of(events), tmp_path / "t", capture="c1", window_start_ns=0, window_end_ns=1000, tracks=TRACKS)
    assert open_trace(path).summary()["outside_operators"] == [{"name": "loop", "wall_ns": 600}]


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=12),
    st.lists(st.integers(1, 8), min_size=1, max_size=8),
    st.integers(1, 5),
)
def test_as_a_slow_twin_counts(operators: list[tuple[int, int]], lengths: list[int], at_once: int) -> None:
    """Samples side by side, each with one function within it."""
    events, parents, at = [Event("op", start, start + lasted) for start, lasted in operators], [-1] * len(operators), 0
    moments: dict[str, int] = {}
    for number, lasted in enumerate(lengths):
        for name, start in ((f"outer{number}", at), (f"inner{number}", at + lasted // 2)):
            events.append(Event(name, start, at + lasted, SAMPLE, 1))
            parents.append(-1)
        for moment in range(at, at + lasted):
            if not any(start <= moment < start + long for start, long in operators):
                name = f"inner{number}" if moment >= at + lasted // 2 else f"outer{number}"
                moments[name] = moments.get(name, 0) + 1
        at += lasted
    order = sorted(range(len(events)), key=lambda index: events[index].start)
    row = {events[index].name: place for place, index in enumerate(order)}
    parents = [row[f"outer{event.name[5:]}"] if event.name.startswith("inner") else -1 for event in events]
    found = {each["name"]: each["wall_ns"] for each in outside(events, parents, (0, 100), at_once)}
    assert found.items() <= moments.items()
    assert sorted(found.values()) == sorted(moments.values())[-5:]


@pytest.mark.parametrize("parent", [-1, 5])
def test_a_parent_that_is_no_sample_takes_nothing(parent: int) -> None:
    assert outside([Event("f", 0, 10, SAMPLE, 1)], [parent]) == [{"name": "f", "wall_ns": 10}]
