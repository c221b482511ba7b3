"""Functions that call themselves, against counted nanoseconds: a function took as long as it was open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.events import Kind
from profd.query import open_trace
from profd.query.averages import Average, Grouping, averages

from tests.support.tables import Event, store, table_of

Call = tuple[str, list[Any], int]  # a name, what it calls, ns of its own

CALLS = st.recursive(
    st.tuples(st.sampled_from("abc"), st.just([]), st.integers(1, 3)),
    lambda calls: st.tuples(st.sampled_from("abc"), st.lists(calls, max_size=3), st.integers(1, 3)),
    max_leaves=25,
)


def laid_out(call: Call, start: int, kind: Kind, thread: int) -> list[Event]:
    """A call and all below it: own time, then each call that it makes, followed by 1 ns of its own."""
    name, inner, own = call
    events, now = [Event(name, start, None, kind, thread)], start + own
    for one in inner:
        below = laid_out(one, now, kind, thread)
        events += below
        now = (below[0].end or 0) + 1
    events[0].end = now
    return events


def open_ns(events: list[Event]) -> dict[str, int]:
    """How many nanoseconds of each thread each function was open, however often."""
    moments = {(e.name, e.thread, ns) for e in events for ns in range(e.start, e.end or 0)}
    return {name: sum(of == name for of, _, _ in moments) for name in {e.name for e in events}}


@given(st.lists(CALLS, min_size=1, max_size=3), st.sampled_from([Kind.PYTHON_FUNCTION, Kind.SAMPLE]), st.booleans())
def test_a_function_took_the_time_that_it_was_open(calls: list[Call], kind: Kind, raw: bool) -> None:
    events = [event for thread, call in enumerate(calls) for event in laid_out(call, 5, kind, thread)]
    rows = {row.name: row for row in averages(table_of(events), raw=raw)}
    assert {name: row.cpu_time_total_ns for name, row in rows.items()} == open_ns(events)
    assert {name: row.count for name, row in rows.items()} == {
        name: sum(e.name == name for e in events) for name in rows
    }
    assert sum(row.self_cpu_time_total_ns for row in rows.values()) == sum(
        (e.end or 0) - e.start for e in events if e.start == 5
    )


@given(CALLS, st.integers(1, 7))
def test_property_recursion_across_segments(tmp_path_factory: pytest.TempPathFactory, call: Call, rows: int) -> None:
    events = laid_out(call, 0, Kind.PYTHON_FUNCTION, 0)
    trace = open_trace(store(table_of(events), tmp_path_factory.mktemp("trace") / "t", rows=rows))
    for raw in (False, True):
        assert {row.name: row.cpu_time_total_ns for row in trace.key_averages(raw=raw)} == open_ns(events)


def totals(rows: list[Average]) -> dict[Any, int]:
    return {(row.name, tuple(row.stack or ())): row.cpu_time_total_ns for row in rows}


def test_operators_and_ranges_are_torchs() -> None:
    """Two calls below one: no wrapper, so that torch counts the outer and both inner ones."""
    events = [Event("a", 0, 100), Event("a", 10, 20), Event("a", 30, 50)]
    for kind, total in ((Kind.CPU_OP, 130), (Kind.USER_ANNOTATION, 130), (Kind.PYTHON_FUNCTION, 100)):
        assert totals(averages(table_of(replace(event, kind=kind) for event in events))) == {("a", ()): total}


def test_an_operator_within_a_function_of_its_name_is_no_recursion() -> None:
    events = [Event("a", 0, 100, Kind.PYTHON_FUNCTION), Event("a", 10, 20, Kind.CPU_OP)]
    assert totals(averages(table_of(events), raw=True)) == {("a", ()): 110}


def test_a_function_that_only_calls_itself_is_no_wrapper() -> None:
    events = [Event("f", at, 100 - at, Kind.PYTHON_FUNCTION) for at in range(10)]
    (row,) = averages(table_of(events))
    assert (row.count, row.cpu_time_total_ns, row.self_cpu_time_total_ns) == (10, 100, 100)


def test_by_stacks_a_row_within_itself_counts_once() -> None:
    events = [Event("f", at, 100 - at, Kind.PYTHON_FUNCTION) for at in range(4)]
    rows = averages(table_of(events), grouping=Grouping(stack_n=1))
    assert totals(rows) == {("f", ()): 100, ("f", ("f",)): 98}


def test_device_time_and_memory_of_recursion_count_once() -> None:
    function = [Event("f", 0, 100, Kind.PYTHON_FUNCTION), Event("f", 10, 90, Kind.PYTHON_FUNCTION)]
    op = Event("aten::mm", 20, 80, fields={"external": 1, "process": 0})
    work = Event("kernel", 200, 230, Kind.KERNEL, thread=9, fields={"external": 1, "process": 0})
    memory = Event("[memory]", 30, 30, Kind.INSTANT, fields={"bytes": 64, "process": 0})
    for event in function:
        event.fields = {"process": 0}
    rows = {row.name: row for row in averages(table_of([*function, op, work, memory]))}
    f = rows["f"]
    assert (f.count, f.cpu_time_total_ns, f.device_time_total_ns, f.cpu_memory_usage) == (2, 100, 30, 64)
    assert (f.self_cpu_memory_usage, rows["aten::mm"].self_cpu_memory_usage) == (0, 64)


def test_recursion_as_deep_as_it_gets(tmp_path: Path) -> None:
    depth = 100_000
    events = [
        Event("fg"[at % 2], at, 2 * depth + 10 - at, Kind.PYTHON_FUNCTION, fields={"parent": at - 1})
        for at in range(depth)
    ]
    trace = open_trace(store(table_of(events), tmp_path / "t"))
    for raw in (False, True):
        rows = {row.name: (row.count, row.cpu_time_total_ns) for row in trace.key_averages(raw=raw)}
        assert rows == {"f": (depth // 2, 2 * depth + 10), "g": (depth // 2, 2 * depth + 8)}
