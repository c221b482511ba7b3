"""The question `event`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from profd.errors import BadInput
from profd.events import ArgColumn, Dictionary, Kind, Tracks
from profd.query import event as module
from profd.query import event_links
from profd.query.event import event
from profd.segments.reader import TraceReader

from tests.support.tables import Event, store, table_of

BEGIN = 1_700_000_000_000_000_001
STACK = "a.py(1): f;b.py(2): g"
TRACKS = Tracks(
    [{"id": 42, "name": "python"}], [{"id": "main", "process": 0, "name": "MainThread"}, {"id": 7, "process": 0}]
)


@pytest.fixture
def trace(tmp_path: Path) -> TraceReader:
    events = [
        Event("step", BEGIN, BEGIN + 100, Kind.USER_ANNOTATION, fields={"process": 0}),
        Event("op", BEGIN + 10, BEGIN + 40, fields={"process": 0, "parent": 0, "depth": 1, "stack": STACK}),
        Event("launch", BEGIN + 20, BEGIN + 30, Kind.RUNTIME, fields={"parent": 1, "depth": 2, "correlation": 9}),
        Event("kernel", BEGIN + 50, None, Kind.KERNEL, 1, fields={"parent": 2, "linked": 2, "depth": 3, "flops": 2.5}),
        Event("circle", BEGIN + 60, BEGIN + 61, fields={"parent": 4}),
    ]  # fmt: skip
    table = table_of(events)
    rows, codes = np.array([1], dtype=np.int64), np.array([0], dtype=np.int32)
    table.args[("shape", "json")] = ArgColumn("json", rows, codes, Dictionary(["[1, null]"]))
    table.args[("note", "str")] = ArgColumn("str", rows, codes, Dictionary(["<b>"]))
    table.args[("big", "int")] = ArgColumn("int", rows, np.array([2**62], dtype=np.int64))
    return TraceReader(store(table, tmp_path / "t", tracks=TRACKS))


def test_times_place_arguments_and_stack(trace: TraceReader) -> None:
    found = event(trace, row=1)
    json.dumps(found)
    assert (found["name"], found["kind"], found["row"], found["device_type"]) == ("op", "cpu_op", 1, "CPU")
    assert (found["start_ns"], found["end_ns"], found["duration_ns"]) == (BEGIN + 10, BEGIN + 40, 30)
    assert found["from_ns"] == 10
    assert found["process"] == {"id": 42, "name": "python"}
    assert found["thread"] == {"id": "main", "name": "MainThread"}
    assert found["stack"] == ["a.py(1): f", "b.py(2): g"]
    assert found["arguments"] == {"shape": [1, None], "note": "<b>", "big": 2**62}
    assert found["launch"] is None


def test_what_it_is_within_and_what_launched_it(trace: TraceReader) -> None:
    found = event(trace, row=3)
    assert [one["name"] for one in found["within"]] == ["launch", "op", "step"]
    assert found["launch"]["row"] == 2
    assert (found["end_ns"], found["duration_ns"]) == (None, None)
    assert found["columns"] == {"flops": 2.5, "depth": 3}
    assert event(trace, row=2)["columns"] == {"depth": 2, "correlation": 9}


def test_what_is_around_an_event_has_an_end(trace: TraceReader, monkeypatch: pytest.MonkeyPatch) -> None:
    assert event(trace, row=4)["within"] == []
    monkeypatch.setattr(module, "WITHIN_MAX", 2)
    assert [one["name"] for one in event(trace, row=3)["within"]] == ["launch", "op"]


def test_a_row_that_is_not_there(trace: TraceReader) -> None:
    with pytest.raises(BadInput, match="the trace has no row 5: it has 5 events"):
        event(trace, row=5)


def test_what_a_call_launches_itself_and_by_what_it_calls(trace: TraceReader) -> None:
    for row in (1, 2):
        found = event(trace, row=row)["launched"]
        assert (found["events"], found["partly"]) == (1, False)
        assert [one["name"] for one in found["first"]] == ["kernel"]
    assert event(trace, row=4)["launched"] == {"events": 0, "first": [], "partly": False}
    assert event(trace, row=3)["launched"]["events"] == 0  # launched, and launches nothing


def test_what_is_launched_far_behind_is_not_looked_for(trace: TraceReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_links, "LAUNCH_ROWS", 3)
    assert event(trace, row=1)["launched"] == {**event(trace, row=2)["launched"], "partly": True}
    monkeypatch.setattr(event_links, "LAUNCH_ROWS", 2)
    assert event(trace, row=1)["launched"]["events"] == 0


def test_an_op_leads_to_its_backward_function_and_back(tmp_path: Path) -> None:
    def op(name: str, at: int, thread: int, **fields: int) -> Event:
        return Event(name, BEGIN + at, BEGIN + at + 5, thread=thread, fields={"process": 0, **fields})

    engine = "autograd::engine::evaluate_function: MmBackward0"
    events = [
        op("aten::mm", 0, 0, sequence=7), op("aten::mm", 10, 0, sequence=8), op("aten::add", 20, 0),
        op(engine, 30, 1), op("MmBackward0", 30, 1, sequence=8, fwd_thread=5),
        op(engine, 40, 1), op("MmBackward0", 40, 1, sequence=7, fwd_thread=5),
    ]  # fmt: skip
    tracks = Tracks([{"id": 42}], [{"id": 5, "process": 0}, {"id": 7, "process": 0}])
    read = TraceReader(store(table_of(events), tmp_path / "t", tracks=tracks))
    pairs = {row: [one["row"] for one in event(read, row=row)["backward"]] for row in range(len(read))}
    assert pairs == {0: [6], 1: [4], 2: [], 3: [], 4: [], 5: [], 6: []}
    forward = {row: (event(read, row=row)["forward"] or {}).get("row") for row in range(len(read))}
    assert forward == {0: None, 1: None, 2: None, 3: 1, 4: 1, 5: 0, 6: 0}


def test_a_number_beyond_a_double_is_its_text(trace: TraceReader) -> None:
    """An answer is JSON, and infinity is none: the page could not read it."""
    table = table_of([Event("op", BEGIN, BEGIN + 10)])
    rows, codes = np.array([0], dtype=np.int64), np.array([0], dtype=np.int32)
    table.args[("shape", "json")] = ArgColumn("json", rows, codes, Dictionary([f"[1e999, 1, {'9' * 5000}]"]))
    found = event(TraceReader(store(table, trace.directory.parent / "u", tracks=TRACKS)), row=0)
    assert json.loads(json.dumps(found, allow_nan=False))["arguments"]["shape"] == ["1e999", 1, "9" * 5000]
