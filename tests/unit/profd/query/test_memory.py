"""What is still alive, against a loop that keeps a dictionary of blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.events import DeviceType, Kind, Tracks
from profd.query import memory, open_trace, whole
from profd.query.memory import memory_of_trace
from profd.segments.reader import TraceReader

from tests.support.tables import Event, store, table_of

CPU, CUDA = DeviceType.CPU, DeviceType.CUDA
PYTHON = Kind.PYTHON_FUNCTION


def record(at: int, size: int, ptr: int | None = 1, place: DeviceType = CPU, **fields: Any) -> Event:
    return Event("[memory]", at, at, Kind.MEMORY, 0, place, {"bytes": size, "ptr": ptr, "process": 0, **fields})


def trace_of(folder: Path, events: list[Event], rows: int = 1 << 19) -> TraceReader:
    tracks = Tracks([{"id": 1}], [{"id": 11, "process": 0}])
    return TraceReader(store(table_of(events), folder / "t", rows=rows, tracks=tracks))


def told(reader: TraceReader, **asked: Any) -> list[tuple[Any, ...]]:
    rows = memory_of_trace(reader, **{"limit": 0, **asked})["alive"]["rows"]
    return [(row["bytes"], row["blocks"], row["stack"]) for row in rows]


def test_a_list_that_keeps_tensors(tmp_path: Path) -> None:
    """One block a step is kept, another is freed; what was freed without having been allocated here is no leak."""
    events = [Event("main", 0, 1000, PYTHON), record(5, -64, 999, parent=0)]
    for n in range(3):
        at, row = 100 * n + 10, len(events)
        events += [
            Event(f"ProfilerStep#{n}", at, at + 90, Kind.USER_ANNOTATION, fields={"parent": 0}),
            Event("aten::mul", at + 10, at + 20, fields={"parent": row}),
            record(at + 15, 400, 1000 + n, parent=row + 1),
            Event("aten::add", at + 30, at + 40, fields={"parent": row}),
            record(at + 35, 8000, 77, parent=row + 3),
            record(at + 50, -8000, 77, parent=row),
        ]
    reader = trace_of(tmp_path, events)
    answer = memory_of_trace(reader, limit=0)
    assert answer["alive"] == {
        "blocks": 3,
        "bytes": 1200,
        "stacks": 1,
        "left_out": 0,
        "rows": [
            {
                "device_type": "CPU",
                "device": None,
                "bytes": 1200,
                "blocks": 3,
                "steps": 3,
                "grows": True,
                "first_ns": 25,
                "last_ns": 225,
                "stack": ["aten::mul", "ProfilerStep#0", "main"],
            }
        ],
    }
    (host,) = answer["devices"]
    assert (host["allocated_bytes"], host["freed_bytes"], host["net_bytes"]) == (25_200, 24_064, 1136)
    assert open_trace(tmp_path / "t").summary()["alive"] == answer["alive"]
    # AND of a part: what was allocated in it
    assert told(reader, first_step=1) == [(400, 1, ["aten::mul", "ProfilerStep#1", "main"])]
    # At 150 ns the block of 8000 bytes of step 1 is not freed yet
    assert [row[:2] for row in told(reader, from_ns=110, to_ns=150)] == [(8000, 1), (400, 1)]


def test_blocks_of_one_address_on_different_devices(tmp_path: Path) -> None:
    events = [record(1, 10), record(2, 20, 1, CUDA, device=0), record(3, 30, 1, CUDA, device=1), record(4, -10)]
    answer = memory_of_trace(trace_of(tmp_path, events), limit=0)
    assert [(row["device_type"], row["device"], row["bytes"]) for row in answer["alive"]["rows"]] == [
        ("CUDA", 1, 30),
        ("CUDA", 0, 20),
    ]


def test_recorded_frames_where_functions_were_not_recorded(tmp_path: Path) -> None:
    stack = "/job/train.py(9): keep;/job/train.py(20): main"
    of_op = Event("aten::mul", 0, 10, fields={"stack": stack, "process": 0})
    events = [of_op, record(5, 8, 1, parent=0), record(20, 4, 2, stack="f;g"), record(21, 2, 3)]
    assert told(trace_of(tmp_path / "ops", events)) == [
        (8, 1, ["aten::mul", "/job/train.py(9): keep", "/job/train.py(20): main"]),
        (4, 1, ["f", "g"]),
        (2, 1, []),
    ]
    functions = [Event("train.py(20): main", 0, 50, PYTHON), *events]
    for event in functions[1:3]:
        event.fields["parent"] = functions.index(event) - 1
    assert told(trace_of(tmp_path / "functions", functions))[0] == (8, 1, ["aten::mul", "train.py(20): main"])


@pytest.mark.parametrize("with_steps", [True, False])
def test_what_grows_comes_before_what_is_in_use_at_the_end(tmp_path: Path, with_steps: bool) -> None:
    """A large block that lives from step to step, and is there at the end, is no leak."""
    events: list[Event] = []
    for n in range(10):
        at = 100 * n
        if with_steps:
            events.append(Event(f"ProfilerStep#{n}", at, at + 90, Kind.USER_ANNOTATION))
        events += [record(at + 10, 8, 1000 + n, stack="keep"), record(at + 20, 9000, 5, stack="use")]
        events += [record(at + 30 + k, 500, 2000 + k, stack="last") for k in range(3)]
    rows = memory_of_trace(trace_of(tmp_path, events), limit=0)["alive"]["rows"]
    assert [(row["stack"][0], row["blocks"], row["bytes"], row["grows"]) for row in rows] == [
        ("keep", 10, 80, True),
        ("use", 1, 9000, False),
        ("last", 3, 1500, False),
    ]
    assert [row["steps"] for row in rows] == ([10, 1, 1] if with_steps else [None] * 3)


RECORDS = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(-3, 3), st.integers(0, 3), st.sampled_from([CPU, CUDA]), st.integers(-1, 1)
    ),
    max_size=25,
)


@given(RECORDS, st.integers(0, 10), st.integers(1, 25), st.integers(1, 9))
def test_property_a_dictionary_of_blocks_tells_the_same(
    tmp_path_factory: pytest.TempPathFactory, records: list[Any], low: int, lasting: int, rows: int
) -> None:
    events = [Event("a", 0, 100), Event("b", 0, 100, thread=1)]
    events += [
        record(at, size, ptr, place, process=process, parent=parent)
        for at, (process, size, ptr, place, parent) in enumerate(records)
    ]
    held: dict[tuple[int, int, DeviceType], tuple[int, int]] = {}
    for at, (process, size, ptr, place, parent) in enumerate(records):
        if ptr and size and low <= at < low + lasting:
            held.pop((process, ptr, place), None)
            if size > 0:
                held[process, ptr, place] = (size, parent)
    want: dict[tuple[str, tuple[str, ...]], tuple[int, int]] = {}
    for (_, _, place), (size, parent) in held.items():
        key = (place.label, ("ab"[parent],) if parent >= 0 else ())
        total, blocks = want.get(key, (0, 0))
        want[key] = (total + size, blocks + 1)
    reader = trace_of(tmp_path_factory.mktemp("t"), events, rows)
    found = memory_of_trace(reader, limit=0, from_ns=low, to_ns=low + lasting)["alive"]
    got = {
        (row["device_type"], tuple(row["stack"])): (row["bytes"], row["blocks"])
        for row in (found or {"rows": []})["rows"]
    }
    assert got == want


def test_nothing_recorded_and_no_addresses_are_said(tmp_path: Path) -> None:
    bare = memory_of_trace(trace_of(tmp_path / "a", [Event("op", 0, 1)]), limit=0)
    assert (bare["devices"], bare["alive"]) == ([], None)
    assert "--memory" in bare["message"]
    events = [record(1, 5, None), record(2, -5, None)]
    reader = trace_of(tmp_path / "b", events)
    answer = memory_of_trace(reader, limit=0)
    assert answer["alive"] is None
    assert "addresses" in answer["message"]
    assert answer["devices"][0]["freed_bytes"] == 5
    assert open_trace(tmp_path / "b" / "t").summary()["alive"] is None
    assert open_trace(tmp_path / "a" / "t").summary()["alive"] is None


def test_the_largest_stacks_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [Event(f"op{n}", 10 * n, 10 * n + 9) for n in range(9)]
    events += [record(10 * n + 5, n + 1, 50 + n) for n in range(9)]
    table = sorted(events, key=lambda event: event.start)
    for event in events[9:]:
        event.fields["parent"] = next(row for row, one in enumerate(table) if one.name == f"op{event.start // 10}")
    reader = trace_of(tmp_path, events)
    assert told(reader, limit=2) == [(9, 1, ["op8"]), (8, 1, ["op7"])]
    assert memory_of_trace(reader, limit=2)["alive"]["left_out"] == 7
    monkeypatch.setattr(memory, "ALIVE_STACKS_MAX", 1)
    assert len(told(reader)) == len(told(reader, limit=5)) == 1


def test_stacks_as_deep_as_it_gets(tmp_path: Path) -> None:
    depth = 100_000
    events = [
        Event("f", at, 2 * depth + 9 - at, PYTHON, fields={"parent": at - 1, "process": 0}) for at in range(depth)
    ]
    events.append(record(depth, 8, parent=depth - 1))
    ((size, blocks, stack),) = told(trace_of(tmp_path, events))
    assert (size, blocks, len(stack), set(stack)) == (8, 1, 256, {"f"})


def test_a_summary_of_what_is_too_large_has_no_stacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = trace_of(tmp_path, [record(1, 5)])
    monkeypatch.setattr(whole, "QUERY_ROWS_MAX", 0)
    summary = open_trace(tmp_path / "t").summary()
    assert summary["alive"] is None
    assert summary["memory"][0]["net_bytes"] == 5
    assert reader
