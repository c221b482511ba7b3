"""Operators that launch device work, some calls at a time, against torch's view of all events at once."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.errors import Exhausted
from profd.events import DeviceType, Kind
from profd.query import launching_ops as module
from profd.query.averages import Average, Grouping, averages_of_trace
from profd.query.gpu import gpu_of_trace
from profd.query.launching_ops import launching_ops
from profd.segments.reader import TraceReader

from tests.support.call_trees import traces
from tests.support.tables import Event, stored_with_tree


def told(rows: list[Average]) -> list[tuple[object, ...]]:
    """What both say of a group of calls on the CPU that launched something."""
    found = [
        (row.name, row.annotation, row.count, row.self_device_time_total_ns, row.device_time_total_ns)
        for row in rows
        if row.device_type == DeviceType.CPU.label and row.self_device_time_total_ns > 0
    ]
    return sorted(found)


def at_once(reader: TraceReader) -> list[tuple[object, ...]]:
    return told(averages_of_trace(TraceReader(reader.directory), raw=False, grouping=Grouping()))


@given(traces(), st.sampled_from([1, 3, 100]), st.sampled_from([1, 5, 1000]))
def test_property_some_at_a_time_as_at_once(events: list[Event], rows: int, together: int) -> None:
    if not events:
        return
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        reader = stored_with_tree(events, Path(folder), rows, gpu_events=1)
        patch.setattr(module, "_TOGETHER", together)
        assert told(launching_ops(reader)) == at_once(reader)


def kernel(start: int, lasts: int, **fields: int) -> Event:
    return Event("k", start, start + lasts, Kind.KERNEL, 1, fields=fields)


JOB = [
    Event("aten::linear", 0, 100, fields={"external": 1}),
    Event("aten::mm", 10, 90, fields={"external": 2}),
    Event("aten::mm", 20, 80, fields={"external": 3}),  # wrapped
    Event("launch", 30, 40, Kind.RUNTIME, fields={"correlation": 70}),
    Event("aten::add", 200, 300, fields={"external": 4}),
    Event("launch", 210, 220, Kind.RUNTIME, fields={"correlation": 71}),
    Event("aten::add", 400, 500, fields={"external": 5}),
    Event("aten::mul", 600, 700, fields={"external": 6}),
    Event("aten::mul", 800, 900, fields={"external": 6}),  # an id of two says nothing
    kernel(1000, 7, correlation=70, external=-1),  # long after the call that launched it
    kernel(1100, 5, correlation=71, external=-1),
    kernel(1200, 3, correlation=72, external=5),  # by its id
    kernel(1300, 2, correlation=73, external=6),
]


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_work_that_comes_long_after_its_launch(tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = stored_with_tree(JOB, tmp_path, rows, gpu_events=4)
    monkeypatch.setattr(module, "_TOGETHER", 1)
    want = [("aten::add", False, 2, 8, 8), ("aten::mm", False, 1, 7, 7)]
    assert told(launching_ops(reader)) == at_once(reader) == want
    monkeypatch.setattr("profd.limits.QUERY_ROWS_MAX", 3)
    answer = gpu_of_trace(reader)
    assert [(one["name"], one["count"], one["self_device_time_total_ns"]) for one in answer["ops"]] == [
        ("aten::add", 2, 8),
        ("aten::mm", 1, 7),
    ]
    assert "ops_message" not in answer


def lasting(folder: Path) -> TraceReader:
    """One call around 49 others, and a kernel."""
    calls = [Event("aten::add", n * 10, n * 10 + 5) for n in range(1, 50)]
    return stored_with_tree([Event("main", 0, 10_000), *calls, kernel(700, 5)], folder, 2, gpu_events=1)


@pytest.mark.parametrize(
    ("limit", "why"),
    [("QUERY_ROWS_MAX", "more than 20 calls of a thread"), ("OPERATORS_ROWS_MAX", "more than 20 events")],
)
def test_what_would_take_too_much(tmp_path: Path, limit: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = lasting(tmp_path)
    monkeypatch.setattr(module, "_TOGETHER", 1)
    monkeypatch.setattr(module, limit, 20)
    with pytest.raises(Exhausted, match=why):
        launching_ops(reader)
    monkeypatch.setattr("profd.limits.QUERY_ROWS_MAX", 3)
    answer = gpu_of_trace(reader)
    assert answer["ops"] == []
    assert why in answer["ops_message"]
    assert "`profctl top --step N` has it of a step" in answer["ops_message"]
