"""The tree as JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from profd.errors import BadInput
from profd.events import Kind, Tracks
from profd.query.tree import tree_lines
from profd.segments.reader import TraceReader

from tests.support.tables import Event, store, table_of

TRACKS = Tracks(
    processes=[{"id": 42, "name": "python"}],
    threads=[{"id": "main", "process": 0}, {"id": 7, "process": 0}],
)


def events() -> list[Event]:
    return [
        Event("step", 0, 100, Kind.USER_ANNOTATION, fields={"process": 0, "depth": 0}),
        Event("op", 10, 40, fields={"process": 0, "parent": 0, "depth": 1, "cat": "cpu_op", "external": 5}),
        Event("launch", 20, 30, Kind.RUNTIME, fields={"process": 0, "parent": 1, "depth": 2, "correlation": 9}),
        Event(
            "kernel",
            50,
            60,
            Kind.KERNEL,
            thread=1,
            fields={"process": 0, "parent": 2, "depth": 3, "correlation": 9, "device": 0, "stream": 7},
        ),
        Event("open", 70, None, fields={"process": 0, "parent": 0, "depth": 1}),
        Event("next", 200, 210, fields={"process": 0, "depth": 0}),
    ]


def lines(path: Path, **query: Any) -> list[dict[str, Any]]:
    pieces = list(tree_lines(TraceReader(path), **query))
    parsed = [json.loads(line) for _, text in pieces for line in text.splitlines()]
    assert sum(count for count, _ in pieces) == len(parsed)
    return parsed


@pytest.fixture(params=[1, 2, 100], ids="segments of {}".format)
def trace(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return store(table_of(events()), tmp_path / "t", rows=request.param, tracks=TRACKS)


def test_every_field_and_absent_as_null(trace: Path) -> None:
    rows = lines(trace)
    assert [row["row"] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert rows[1] == {
        "row": 1,
        "parent": 0,
        "depth": 1,
        "name": "op",
        "kind": "cpu_op",
        "cat": "cpu_op",
        "start_ns": 10,
        "end_ns": 40,
        "process": 42,
        "thread": "main",
        "device_type": "CPU",
        "device": None,
        "stream": None,
        "correlation": None,
        "external": 5,
    }
    assert rows[0]["parent"] is None
    assert rows[0]["cat"] is None
    assert rows[4]["end_ns"] is None
    assert (rows[3]["thread"], rows[3]["stream"], rows[3]["kind"]) == (7, 7, "kernel")
    assert rows[3]["device_type"] == "CUDA"


def test_only_the_upper_levels(trace: Path) -> None:
    assert [row["name"] for row in lines(trace, max_depth=1)] == ["step", "next"]
    assert [row["name"] for row in lines(trace, max_depth=2)] == ["step", "op", "open", "next"]


def test_what_is_below_a_row(trace: Path) -> None:
    below = lines(trace, from_row=1)
    assert [(row["name"], row["depth"]) for row in below] == [("op", 0), ("launch", 1), ("kernel", 2)]
    assert [row["row"] for row in lines(trace, from_row=0, max_depth=2)] == [0, 1, 4]
    assert [row["row"] for row in lines(trace, from_row=5)] == [5]


@pytest.mark.parametrize("row", [-1, 6, 1 << 60])
def test_a_row_that_is_not_there(trace: Path, row: int) -> None:
    with pytest.raises(BadInput, match="rows are 0 to 5"):
        lines(trace, from_row=row)


def test_a_child_that_is_the_earlier_row(tmp_path: Path) -> None:
    # Of equal starts the longer encloses, whatever came first in the file.
    pair = [Event("inner", 0, 5, fields={"parent": 1, "depth": 1}), Event("outer", 0, 9, fields={"depth": 0})]
    path = store(table_of(pair), tmp_path / "t", rows=1)
    assert [row["name"] for row in lines(path, from_row=1)] == ["inner", "outer"]


def test_names_and_ids_that_plain_encoders_refuse(tmp_path: Path) -> None:
    tracks = Tracks(processes=[{"id": 1 << 80}], threads=[{"id": 1.5, "process": 0}])
    odd = [Event("lone \ud800 surrogate", 0, 5, fields={"process": 0}), Event('quote " \\ \n', 1, 2, fields={})]
    rows = lines(store(table_of(odd), tmp_path / "t", tracks=tracks))
    assert [row["name"] for row in rows] == ["lone \ud800 surrogate", 'quote " \\ \n']
    assert (rows[0]["process"], rows[1]["process"]) == (1 << 80, None)


def test_no_events_no_lines(tmp_path: Path) -> None:
    assert lines(store(table_of([]), tmp_path / "t")) == []
