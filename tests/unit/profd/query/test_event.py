"""The question `event`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from profd.errors import BadInput
from profd.events import ArgColumn, Dictionary, Kind, Tracks
from profd.query import event as module
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
