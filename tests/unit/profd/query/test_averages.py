"""Grouping, sorting and FLOPS of key averages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from profd.errors import BadInput, Exhausted
from profd.events import Kind
from profd.query import averages as module
from profd.query import open_trace, whole
from profd.query.averages import SORT_KEYS, Grouping, averages, sort_averages
from profd.query.estimates import FIELDS

from tests.support.tables import Event, store, table_of

PYTHON = Kind.PYTHON_FUNCTION


def inputs(*dims: object, kind: str = "float") -> str:
    return json.dumps({"Input Dims": list(dims), "Input type": [kind] * len(dims)})


def test_sorted_by_each_key() -> None:
    rows = averages(
        table_of(
            [
                Event("long", 0, 100),
                Event("often", 10, 20),
                Event("often", 20, 30),
                Event("k", 200, 300, Kind.KERNEL, thread=9),
            ]
        )
    )
    first = {key: sort_averages(rows, key)[0].name for key in SORT_KEYS}
    assert first["self_cpu_time_total"] == first["cpu_time_total"] == "long"
    assert first["count"] == "often"
    assert first["device_time_total"] == first["self_device_time_total"] == "k"
    assert first["name"] == "k"


def test_an_unknown_key_lists_the_known_ones() -> None:
    with pytest.raises(BadInput, match="self_cpu_time_total, cpu_time_total"):
        sort_averages([], "speed")


def test_input_shapes_are_those_of_torch() -> None:
    events = [
        Event("aten::mm", 0, 10, fields={"inputs": inputs([2, 3], [3, 4])}),
        Event("aten::mm", 10, 20, fields={"inputs": inputs([2, 3], [3, 4])}),
        Event("aten::mm", 20, 30, fields={"inputs": inputs([5, 3], [3, 4])}),
        Event("aten::cat", 30, 40, fields={"inputs": inputs([[2], [3]], [])}),  # a list of tensors
        Event("aten::mm", 40, 50),
    ]
    rows = averages(table_of(events), grouping=Grouping(input_shape=True))
    assert [(row.name, row.input_shapes, row.count) for row in rows] == [
        ("aten::mm", "[[2,3],[3,4]]", 2),
        ("aten::mm", "[[5,3],[3,4]]", 1),
        ("aten::cat", "[[],[]]", 1),
        ("aten::mm", "[]", 1),
    ]


def test_flops_where_there_are_shapes() -> None:
    mm = Event("aten::mm", 0, 10, fields={"inputs": inputs([2, 3], [3, 4])})
    assert averages(table_of([mm]))[0].flops == 48
    assert averages(table_of([mm]), raw=True)[0].flops == 48
    assert averages(table_of([Event("aten::mm", 0, 10)]))[0].flops is None


def test_absurd_shapes_still_fit_an_integer() -> None:
    mm = Event("aten::mm", 0, 10, fields={"inputs": inputs([10**9, 10**9], [10**9, 10**9])})
    assert averages(table_of([mm]))[0].flops == 2**63 - 1


def test_recorded_stacks_innermost_first() -> None:
    events = [
        Event("a", 0, 10, fields={"stack": "in;mid;out"}),
        Event("a", 10, 20, fields={"stack": "in;mid;other"}),
        Event("a", 20, 30, fields={"stack": "in"}),
        Event("a", 30, 40),
    ]
    two = averages(table_of(events), grouping=Grouping(stack_n=2))
    assert [(row.stack, row.count) for row in two] == [(["in", "mid"], 2), (["in"], 1), ([], 1)]
    assert len(averages(table_of(events), grouping=Grouping(stack_n=3))) == 4


def test_frames_that_torch_hides_are_not_counted() -> None:
    grads = "torch/autograd/__init__.py(91): _make_grads"
    recorded = Event("a", 0, 10, fields={"stack": f"in;{grads};out;"})
    rows = averages(table_of([recorded]), grouping=Grouping(stack_n=5))
    assert rows[0].stack == ["in", "out"]
    events = [Event("out", 0, 100, PYTHON), Event(grads, 10, 50, PYTHON), Event("op", 20, 30)]
    rows = averages(table_of(events), grouping=Grouping(stack_n=2))
    assert [row.stack for row in rows if row.name == "op"] == [["out"]]


def test_enclosing_python_functions_where_no_stack_was_recorded() -> None:
    events = [
        Event("main", 0, 100, PYTHON),
        Event("f", 10, 40, PYTHON),
        Event("range", 12, 38, Kind.USER_ANNOTATION),
        Event("op", 15, 20),
        Event("g", 50, 90, PYTHON),
        Event("op", 60, 70),
        Event("op", 95, 99),
    ]
    rows = averages(table_of(events), grouping=Grouping(stack_n=2))
    assert [row.stack for row in rows if row.name == "op"] == [["f", "main"], ["g", "main"], ["main"]]
    raw = averages(table_of(events), raw=True, grouping=Grouping(stack_n=1))
    assert [row.stack for row in raw if row.name == "op"] == [["f"], ["g"], ["main"]]


def test_samples_group_by_the_functions_around_them() -> None:
    events = [Event("main", 0, 100, Kind.SAMPLE), Event("f", 10, 40, Kind.SAMPLE), Event("g", 20, 30, Kind.SAMPLE)]
    rows = averages(table_of(events), grouping=Grouping(stack_n=2))
    assert {row.name: (row.stack, row.self_cpu_time_total_ns) for row in rows} == {
        "main": ([], 70),
        "f": (["main"], 20),
        "g": (["f", "main"], 10),
    }


def test_rows_as_json() -> None:
    row = averages(table_of([Event("a", 0, 10)]))[0].as_json()
    assert row == {
        "name": "a",
        "device_type": "CPU",
        "count": 1,
        "cpu_time_total_ns": 10,
        "self_cpu_time_total_ns": 10,
        "device_time_total_ns": 0,
        "self_device_time_total_ns": 0,
        "input_shapes": None,
        "stack": None,
        "flops": None,
        "module": None,
        "backward_time_total_ns": None,
        "cpu_memory_usage": None,
        "self_cpu_memory_usage": None,
        "device_memory_usage": None,
        "self_device_memory_usage": None,
        "node_id": None,
        **dict.fromkeys(FIELDS),
        "looks": None,
    }


def test_stored_traces_answer_like_tables(tmp_path: Path) -> None:
    events = [
        Event("a", 0, 100, fields={"external": 1, "inputs": inputs([2])}),
        Event("a", 10, 90, fields={"external": 2, "inputs": inputs([3])}),
        Event("b", 95, 130),
        Event("k", 120, 150, Kind.KERNEL, thread=9, fields={"external": 2}),
    ]
    table = table_of(events)
    for rows in (1, 2, 100):
        trace = open_trace(store(table, tmp_path / str(rows), rows=rows))
        for raw in (False, True):
            for grouping in (Grouping(), Grouping(input_shape=True), Grouping(stack_n=1)):
                got = trace.key_averages(grouping.input_shape, grouping.stack_n, raw=raw, sort_by="name")
                assert got == sort_averages(averages(table, raw=raw, grouping=grouping), "name")


def test_a_trace_too_large_for_torchs_view_still_has_a_raw_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = open_trace(store(table_of([Event("a", at, at + 2) for at in range(0, 30, 3)]), tmp_path / "t", rows=4))
    monkeypatch.setattr(whole, "QUERY_ROWS_MAX", 5)
    with pytest.raises(Exhausted, match="--raw"):
        trace.key_averages()
    assert trace.key_averages(raw=True)[0].count == 10
    assert trace.summary()["top"][0]["count"] == 10


def test_columns_read_are_only_those_needed() -> None:
    plain = module.columns_for(False, Grouping(), on_device=False)
    assert "linked" not in plain
    assert "linked" in module.columns_for(False, Grouping(), on_device=True)
    assert "stack" in module.columns_for(True, Grouping(stack_n=1), on_device=True)
