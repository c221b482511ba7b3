"""Backward ops and their forward ops, with links worked out by hand and against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from profd.derive.autograd import backward_times, find_links
from profd.events import DeviceType, Dictionary, EventTable, Flows, Kind, Tracks
from profd.query.averages import Average, Grouping, averages
from profd.query.view import nest
from profd.tree.forward import EVALUATE_PREFIX

from tests.support.tables import Event, table_of

PYTHON = Kind.PYTHON_FUNCTION


def op(name: str, start: int, end: int, thread: int = 0, **fields: Any) -> Event:
    return Event(name, start, end, Kind.CPU_OP, thread, DeviceType.CPU, {"process": 0, **fields})


def threads(*ids: int) -> Tracks:
    return Tracks([{"id": 1}], [{"id": number, "process": 0} for number in ids])


def flows(table: EventTable, *pairs: tuple[int, int, int], category: str = "fwdbwd") -> Flows:
    """(id, row of the start, row of the end)."""
    code = table.dictionaries.setdefault("cat", Dictionary()).code(category)
    records = [(number, ord(phase), row) for number, s, f in pairs for phase, row in (("s", s), ("f", f))]
    rows = np.array([record[2] for record in records], dtype=np.int64)
    return Flows(
        id=np.array([record[0] for record in records], dtype=np.int32),
        category=np.full(len(records), code, dtype=np.int32),
        name=np.full(len(records), -1, dtype=np.int32),
        phase=np.array([record[1] for record in records], dtype=np.uint8),
        enclosing=np.ones(len(records), dtype=bool),
        thread=table.column("thread")[rows],
        time=table.columns["start"][rows],
        row=rows,
    )


def test_the_latest_forward_op_that_began_before() -> None:
    table = table_of(
        [
            op("linear", 0, 10, 0, sequence=7, fwd_thread=0),  # row 0
            op("t", 1, 3, 0, sequence=7, fwd_thread=0),
            op("view", 1, 2, 0, sequence=7, fwd_thread=0),  # row 2: the later of equal starts
            op("other", 4, 5, 1, sequence=7),  # another thread
            op("relu", 5, 6, 0, sequence=8),
            op("TBackward0", 20, 30, 1, sequence=7, fwd_thread=100),  # row 5
            op("again", 25, 26, 0, sequence=7),  # too late
            op("Lost", 40, 41, 1, sequence=9, fwd_thread=100),
            op("AccumulateGrad", 50, 51, 1),
        ]
    )
    links = find_links(table, None, threads(100, 200))
    assert links.forward_row.tolist() == [-1, -1, -1, -1, -1, 2, -1, -1, -1]
    assert links.context_row.tolist() == [-1, -1, -1, -1, -1, 0, -1, -1, -1]
    assert np.flatnonzero(links.backward).tolist() == [5, 7]


def test_flows_say_which_thread_a_number_is() -> None:
    table = table_of(
        [
            op("a", 0, 1, 0, sequence=0),
            op("b", 2, 3, 0, sequence=1),
            op("b", 2, 3, 1, sequence=1),
            op("a", 2, 4, 1, sequence=0),
            op("ABackward", 10, 12, 2, sequence=0, fwd_thread=1),
            op("BBackward", 13, 14, 2, sequence=1, fwd_thread=1),
            op("BBackward", 15, 16, 2, sequence=1, fwd_thread=2),  # no flow speaks of thread 2
        ]
    )
    assert find_links(table, None, threads(11, 12, 13)).forward_row.tolist() == [-1] * 7
    for category in ("fwdbwd", "forward_backward"):
        links = find_links(table, flows(table, (5, 3, 4), category=category), threads(11, 12, 13))
        assert links.forward_row.tolist() == [-1, -1, -1, -1, 3, 2, -1]
    # A flow of another kind joins nothing, nor one that ends where it begins or goes back.
    for wrong in (flows(table, (5, 3, 4), category="ac2g"), flows(table, (1, 4, 4), (2, 5, 4))):
        assert find_links(table, wrong, threads(11, 12, 13)).forward_row.tolist() == [-1] * 7


def test_flows_of_a_trace_that_records_no_forward_threads() -> None:
    table = table_of([op("a", 0, 1, 0, sequence=3), op("ABackward", 5, 6, 0, sequence=3)])
    links = find_links(table, flows(table, (5, 0, 1)), threads(11))
    assert not links.backward.any()
    assert links.forward_row.tolist() == [-1, 0]


def test_one_forward_thread_needs_no_flow() -> None:
    table = table_of([op("a", 0, 1, 1, sequence=3), op("ABackward", 5, 6, 0, sequence=3, fwd_thread=1)])
    assert find_links(table, None, threads(4001, 4002)).forward_row.tolist() == [-1, 0]


def test_the_engines_row_takes_over_what_its_function_says() -> None:
    table = table_of(
        [
            op("a", 0, 1, 0, sequence=3),
            op(EVALUATE_PREFIX + "ABackward", 10, 20, 0),
            op("ABackward", 11, 19, 0, sequence=3, fwd_thread=1),
            op(EVALUATE_PREFIX + "BBackward", 30, 40, 0),
            op("CBackward", 31, 39, 0, sequence=4, fwd_thread=1),  # not the function it names
        ]
    )
    links = find_links(table, None, threads(1))
    assert links.backward.tolist() == [False, True, True, False, True]
    assert links.function.tolist() == [False, False, True, False, True]
    assert links.forward_row.tolist() == [-1, 0, 0, -1, -1]
    parent, _ = nest(table, np.ones(5, dtype=bool))
    # The engine's row and the function in it are one stretch of time.
    assert backward_times(links, parent, np.array([1, 10, 8, 10, 8])).tolist() == [10, 0, 0, 0, 0]


def rows_by_name(events: list[Event], **grouping: Any) -> dict[str, Average]:
    table = table_of(events)
    links = find_links(table, None, threads(1, 2))
    rows = averages(table, links=links, with_backward=True, grouping=Grouping(**grouping))
    return {row.name: row for row in rows}


def test_backward_time_stack_and_module() -> None:
    events = [
        Event("main", 0, 200, PYTHON, 0, DeviceType.CPU, {"process": 0}),
        Event("nn.Module: Net_0", 10, 50, PYTHON, 0, DeviceType.CPU, {"process": 0}),
        op("linear", 12, 40, 0, sequence=5),
        op("addmm", 14, 30, 0, sequence=6),
        op(EVALUATE_PREFIX + "AddmmBackward0", 60, 90, 1),
        op("AddmmBackward0", 61, 89, 1, sequence=6, fwd_thread=1),
        op("mm", 65, 70, 1),
        op(EVALUATE_PREFIX + "TBackward0", 90, 97, 1),
        op("TBackward0", 91, 96, 1, sequence=5, fwd_thread=1),
        op("torch::autograd::AccumulateGrad", 98, 99, 1),
    ]
    found = rows_by_name(events, stack_n=2, module=True)
    assert {name: row.backward_time_total_ns for name, row in found.items() if row.backward_time_total_ns} == {
        "main": 37,
        "nn.Module: Net_0": 37,
        "linear": 37,
        "addmm": 30,
    }
    assert found["mm"].stack == found["AddmmBackward0"].stack == ["nn.Module: Net_0", "main"]
    assert found["mm"].module == found[EVALUATE_PREFIX + "TBackward0"].module == "Net_0"
    assert found[EVALUATE_PREFIX + "TBackward0"].stack == []
    assert found["torch::autograd::AccumulateGrad"].module == ""


OPS = st.tuples(
    st.integers(0, 12),
    st.integers(0, 6),
    st.integers(0, 2),
    st.one_of(st.none(), st.integers(-1, 3)),
    st.integers(0, 2),
)


def test_an_empty_trace_has_no_links() -> None:
    assert len(find_links(table_of([])).forward_row) == 0
    assert len(find_links(EventTable({"start": np.empty(0, dtype=np.int64)}, {})).forward_row) == 0


@given(st.lists(OPS, max_size=25))
def test_links_by_definition(given_ops: list[tuple[int, int, int, int | None, int]]) -> None:
    """Forward threads are named by the ids of their tracks here: 1 and 2."""
    events = [
        op("x", start, start + lasting, thread, sequence=sequence, fwd_thread=fwd)
        for start, lasting, thread, sequence, fwd in given_ops
    ]
    if not events:
        return
    ordered = sorted(events, key=lambda event: event.start)
    links = find_links(table_of(events), None, threads(9, 1, 2))
    for row, event in enumerate(ordered):
        sequence, fwd = event.fields["sequence"], event.fields["fwd_thread"]
        same = [
            other
            for other, forward in enumerate(ordered)
            if forward.fields["fwd_thread"] == 0 and forward.fields["sequence"] == sequence and forward.thread == fwd
        ]
        known = bool(fwd) and sequence is not None and sequence >= 0
        before = [other for other in same if ordered[other].start <= event.start]
        assert links.forward_row[row] == (before[-1] if known and before else -1)
        assert links.context_row[row] == (same[0] if known and same else -1)
        assert links.backward[row] == bool(fwd)


def test_a_recorded_scope_says_what_a_backward_function_is() -> None:
    engine = EVALUATE_PREFIX + "MulBackward0"
    table = table_of(
        [
            op("mul", 0, 10, 0, sequence=3, scope=0),
            op(engine, 20, 40, 1, scope=0),  # calls a function of another name: that of a custom one
            op("MyFunctionBackward", 21, 39, 1, sequence=3, fwd_thread=100, scope=1),
            op(engine, 50, 60, 1, scope=0),
            op("MulBackward0", 51, 59, 1, scope=0),  # called so, but no function
        ]
    )
    links = find_links(table, None, threads(100, 200))
    assert links.sequence.tolist()[1] == 3
    assert links.forward_row.tolist() == [-1, 0, 0, -1, -1]
    assert links.function.tolist() == [False, False, True, False, False]
