"""Parts of a trace: windows, steps and threads, and key averages of them against what each nanosecond tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.errors import BadInput, Exhausted
from profd.events import Kind, Tracks
from profd.query import whole
from profd.query.averages import Grouping, averages_of_trace
from profd.query.part import part_of, read_part
from profd.query.top import top
from profd.query.tree import tree_lines
from profd.segments.reader import TraceReader

from tests.support.tables import Event, store, table_of

PYTHON = Kind.PYTHON_FUNCTION
THREADS: list[dict[str, Any]] = [
    {"id": 11, "process": 0, "name": "MainThread"},
    {"id": 12, "process": 0, "name": "loader\x1b[2J"},
    {"id": 13, "process": 0},
]
STEPS = [
    Event("main", 0, 400, PYTHON),
    *(Event(f"ProfilerStep#{n}", 100 * n, 100 * n + 90, Kind.USER_ANNOTATION) for n in (1, 2, 3)),
    *(Event("op", 100 * n + 10, 100 * n + 10 * n + 20) for n in (1, 2, 3)),
    Event("load", 150, 350, PYTHON, thread=1),
    Event("launch", 220, 225, Kind.RUNTIME, thread=2),
    Event("kernel", 260, 300, Kind.KERNEL, thread=2, fields={"linked": 7}),
]


def trace_of(folder: Path, events: list[Event] = STEPS, rows: int = 4, **meta: Any) -> TraceReader:
    tracks = Tracks([{"id": 1}], THREADS)
    return TraceReader(store(table_of(events), folder / "t", rows=rows, tracks=tracks, **meta))


def totals(reader: TraceReader, raw: bool = False, **part: Any) -> dict[str, tuple[int, int, int]]:
    rows = averages_of_trace(reader, raw=raw, grouping=Grouping(), part=part_of(reader, **part))
    return {
        row.name: (row.count, row.cpu_time_total_ns or row.device_time_total_ns, row.self_cpu_time_total_ns)
        for row in rows
    }


def test_a_step_has_what_lies_in_it(tmp_path: Path) -> None:
    reader = trace_of(tmp_path)
    assert totals(reader, first_step=2) == {
        "main": (1, 90, 0),
        "ProfilerStep*": (1, 90, 60),
        "op": (1, 30, 30),
        "load": (1, 90, 90),
        "launch": (1, 5, 5),
        "kernel": (1, 30, 0),
    }
    assert totals(reader, first_step=2, last_step=3)["op"] == (2, 70, 70)


def test_a_thread_has_what_it_launched(tmp_path: Path) -> None:
    assert set(totals(trace_of(tmp_path / "a"), thread="MainThread")) == {"main", "ProfilerStep*", "op"}
    assert set(totals(trace_of(tmp_path / "b"), thread="12")) == {"load"}
    # `launch` is on thread 13; its kernel counts although it is recorded elsewhere
    events = [*STEPS[:-1], Event("kernel", 260, 300, Kind.KERNEL, thread=0, fields={"linked": 7})]
    reader = trace_of(tmp_path / "c", events)
    row = [json["name"] for json in _lines(reader)].index("launch")
    events[-1].fields["linked"] = row
    assert totals(trace_of(tmp_path / "d", events), thread="13", from_ns=100) == {
        "launch": (1, 5, 5),
        "kernel": (1, 40, 0),
    }


def _lines(reader: TraceReader, **part: Any) -> list[dict[str, Any]]:
    import json

    return [json.loads(line) for _, lines in tree_lines(reader, **part) for line in lines.splitlines()]


def test_the_tree_of_a_part_is_as_recorded(tmp_path: Path) -> None:
    reader = trace_of(tmp_path)
    every = _lines(reader)
    low, high = 200, 290
    assert _lines(reader, first_step=2) == [
        line for line in every if line["start_ns"] < high and (line["end_ns"] > low or line["start_ns"] >= low)
    ]
    assert _lines(reader, thread="MainThread", max_depth=1, from_ns=390) == [every[0]]
    assert _lines(reader, from_row=0, first_step=3)[0] == every[0]


SPANS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.integers(0, 30), st.integers(0, 1)), min_size=1, max_size=15
)


@given(SPANS, st.integers(0, 30), st.integers(1, 30), st.integers(1, 9))
def test_property_times_are_those_within_the_window(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[str, int, int, int]], low: int, lasting: int, rows: int
) -> None:
    events = [Event(name, start, start + long, Kind.CPU_OP, thread) for name, start, long, thread in spans]
    reader = trace_of(tmp_path_factory.mktemp("t"), events, rows)
    first = min(event.start for event in events)
    low, high = first + low, first + low + lasting
    if low > max(event.end or 0 for event in events):
        with pytest.raises(BadInput, match="the window begins"):
            part_of(reader, from_ns=low - first)
        return
    want: dict[str, tuple[int, int]] = {}
    for event in events:
        if event.start < high and ((event.end or 0) > low or event.start >= low):
            count, total = want.get(event.name, (0, 0))
            open_ns = len(set(range(event.start, event.end or 0)) & set(range(low, high)))
            want[event.name] = (count + 1, total + open_ns)
    found = totals(reader, raw=True, from_ns=low - first, to_ns=high - first)
    assert {name: values[:2] for name, values in found.items()} == want


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ({"first_step": 9999}, r"no step 9999; its steps are 1\.\.3"),
        ({"first_step": 7, "last_step": 9}, r"no step 7\.\.9; its steps are 1\.\.3"),
        ({"first_step": 1, "from_ns": 5}, "give one of them"),
        ({"from_ns": 5, "to_ns": 5}, "its end must be after its start"),
        ({"from_ns": 401}, "the trace lasts 4e-07 s"),
        ({"thread": "Main"}, r"no thread 'Main'; its threads are: MainThread \(11\), loader"),
        ({"thread": "\x1b[2J"}, r"no thread '\\x1b\[2J'"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(tmp_path: Path, part: dict[str, Any], why: str) -> None:
    reader = trace_of(tmp_path)
    with pytest.raises(BadInput, match=why):
        part_of(reader, **part)


def test_windows_whose_ends_go_around(tmp_path: Path) -> None:
    assert totals(trace_of(tmp_path), from_ns=0, to_ns=(1 << 63) - 1) == totals(trace_of(tmp_path / "again"))


def test_a_trace_without_steps_says_how_to_mark_them(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"--step: this trace has no steps \(none found: mark them with profclient\.step.*--window looks"
    ):
        part_of(trace_of(tmp_path, [Event("op", 0, 10)]), first_step=1)


def test_a_window_of_a_trace_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is limited is what is looked at, not the trace."""
    reader = trace_of(tmp_path)
    monkeypatch.setattr(whole, "QUERY_ROWS_MAX", 6)
    assert totals(reader, first_step=2)["op"] == (1, 30, 30)
    with pytest.raises(Exhausted, match="--window"):
        read_part(reader, part_of(reader, from_ns=0), ("name",))


def test_grouping_and_the_backward_pass_of_a_part(tmp_path: Path) -> None:
    ids = {"sequence": 5, "process": 0}
    events = [
        Event("early", 0, 10, fields={"process": 0}),
        Event("aten::mm", 100, 120, fields=ids),
        Event("MmBackward0", 150, 190, fields={**ids, "fwd_thread": 11}),
    ]
    options: dict[str, Any] = {"group_by_input_shape": False, "limit": 0, "sort_by": "name", "raw": False}
    rows = top(
        trace_of(tmp_path, events), group_by="module", group_by_stack_n=0, with_backward=True, from_ns=50, **options
    )
    assert [(row["name"], row["backward_time_total_ns"]) for row in rows] == [("MmBackward0", 0), ("aten::mm", 40)]
