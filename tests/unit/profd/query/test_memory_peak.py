"""Memory at its peak, against a loop that replays every record and keeps a dictionary of blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.errors import BadInput
from profd.events import DeviceType, Kind, Tracks
from profd.query import memory_tree
from profd.query.memory_peak import memory_peak
from profd.segments.reader import TraceReader

from tests.support.tables import Event, store, table_of
from tests.unit.profd.query.test_memory import record

CPU, CUDA = DeviceType.CPU, DeviceType.CUDA
PYTHON = Kind.PYTHON_FUNCTION


def trace_of(folder: Path, events: list[Event], rows: int = 1 << 19) -> TraceReader:
    tracks = Tracks([{"id": 1}], [{"id": 11, "process": 0, "name": "main"}, {"id": 12, "process": 0}])
    return TraceReader(store(table_of(events), folder / "t", rows=rows, tracks=tracks))


def nodes(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [tuple(node[key] for key in ("depth", "name", "bytes", "self_bytes", "blocks")) for node in answer["nodes"]]


def training() -> list[Event]:
    """Two steps: each keeps a block of 100, has most with 1000 more, and frees that; the second has one of before."""
    events = [Event("main", 0, 1000, PYTHON, fields={"process": 0})]
    for n in range(2):
        at, row = 500 * n, len(events)
        events += [
            Event(f"ProfilerStep#{n}", at + 10, at + 490, Kind.USER_ANNOTATION, fields={"parent": 0}),
            Event("aten::mul", at + 20, at + 40, fields={"parent": row}),
            record(at + 30, 100, 10 + n, parent=row + 1),
            Event("aten::mm", at + 50, at + 90, fields={"parent": row}),
            record(at + 60, 1000, 5, parent=row + 3, total_allocated=7000 + at),
            record(at + 80, -1000, 5, parent=row, thread=1),
        ]
    return events


def test_what_is_alive_when_most_is(tmp_path: Path) -> None:
    reader = trace_of(tmp_path, training())
    answer = memory_peak(reader, limit=0)
    assert nodes(answer) == [
        (0, "main", 1200, 0, 3),
        (1, "ProfilerStep*", 1200, 0, 3),
        (2, "aten::mm", 1000, 1000, 1),
        (2, "aten::mul", 200, 200, 2),
    ]
    peak = {"name": "CPU", "device_type": "CPU", "device": None, "peak_bytes": 1200, "at_ns": 560, "after_ns": 560}
    numbers = {"since_ns": 0, "in_use_bytes": 7500, "blocks": 3, "paths": 4, "left_out": 0}
    del answer["nodes"]
    assert answer == {"message": None, "devices": [peak], **peak, **numbers}
    # AND a part has what was allocated in it alone
    step = memory_peak(reader, limit=0, first_step=1)
    assert (step["peak_bytes"], step["blocks"], step["since_ns"], step["at_ns"]) == (1100, 2, 510, 560)
    early = memory_peak(reader, limit=0, to_ns=45)
    assert (early["peak_bytes"], early["in_use_bytes"]) == (100, None)
    # AND the hottest paths come first
    few = memory_peak(reader, limit=3)
    assert ([node["name"] for node in few["nodes"]][2:], few["left_out"]) == (["aten::mm"], 1)


def test_an_address_that_is_allocated_again_had_been_freed(tmp_path: Path) -> None:
    events = [record(1, 10, 7, stack="old"), record(2, 5, 8, stack="other"), record(3, 20, 7, stack="new")]
    answer = memory_peak(trace_of(tmp_path, events), limit=0)
    assert (answer["peak_bytes"], answer["at_ns"]) == (25, 3)
    assert nodes(answer) == [(0, "new", 20, 20, 1), (0, "other", 5, 5, 1)]


def test_a_thread_has_what_it_allocated_whoever_freed_it(tmp_path: Path) -> None:
    events = [record(1, 8, 1), record(2, -8, 1), record(3, 5, 2)]
    other = [Event("a", 0, 100, thread=1), record(10, 3, 4)]
    events[1].thread = other[1].thread = 1
    reader = trace_of(tmp_path, [*events, *other])
    assert (memory_peak(reader, limit=0)["peak_bytes"], memory_peak(reader, limit=0)["at_ns"]) == (8, 1)
    main = memory_peak(reader, limit=0, thread="main")
    assert (main["peak_bytes"], main["blocks"]) == (8, 1)
    second = memory_peak(reader, limit=0, thread="12")
    assert (second["peak_bytes"], second["at_ns"]) == (3, 10)


def test_a_graph_is_of_one_device_an_accelerator_first(tmp_path: Path) -> None:
    events = [record(1, 90), record(2, 20, 1, CUDA, device=0), record(3, 30, 1, CUDA, device=1), record(4, -90)]
    reader = trace_of(tmp_path, events)
    answer = memory_peak(reader, limit=0)
    assert [(one["name"], one["peak_bytes"]) for one in answer["devices"]] == [
        ("CUDA 1", 30),
        ("CUDA 0", 20),
        ("CPU", 90),
    ]
    assert nodes(answer) == [(0, "[memory]", 30, 30, 1)]
    for word in ("CUDA 0", "cuda:0"):
        assert memory_peak(reader, limit=0, device=word)["peak_bytes"] == 20
    with pytest.raises(BadInput, match=r"nothing was allocated on 'cuda:7'.*there are: CUDA 1, CUDA 0, CPU"):
        memory_peak(reader, limit=0, device="cuda:7")


def test_recorded_frames_stand_above_the_calls(tmp_path: Path) -> None:
    stack = "t.py(9): keep;t.py(20): main"
    op = Event("aten::mul", 0, 10, fields={"stack": stack, "process": 0})
    inner = Event("aten::empty", 1, 9, fields={"stack": stack, "parent": 0, "process": 0})
    events = [
        op,
        inner,
        record(5, 8, 1, parent=1),
        record(20, 4, 2, stack="f;f;g"),
        record(21, 2, 3),
        record(22, 1, 4, stack=";"),
    ]
    assert nodes(memory_peak(trace_of(tmp_path / "ops", events), limit=0)) == [
        (0, "t.py(20): main", 8, 0, 1),
        (1, "t.py(9): keep", 8, 0, 1),
        (2, "aten::mul", 8, 0, 1),
        (3, "aten::empty", 8, 8, 1),
        (0, "g", 4, 0, 1),
        (1, "f", 4, 4, 1),
        (0, "[memory]", 3, 3, 2),
    ]
    # AND not where functions were recorded as calls
    functions = [Event("t.py(20): main", 0, 50, PYTHON, fields={"process": 0}), *events]
    op.fields["parent"], inner.fields["parent"], events[2].fields["parent"] = 0, 1, 2
    found = nodes(memory_peak(trace_of(tmp_path / "functions", functions), limit=0))
    assert [one[1] for one in found[:3]] == ["t.py(20): main", "aten::mul", "aten::empty"]


def test_a_tree_that_would_be_too_large_has_the_stacks_with_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [record(n, n + 1, n + 1, stack=f"inner{n};outer") for n in range(9)]
    reader = trace_of(tmp_path, events)
    monkeypatch.setattr(memory_tree, "QUERY_ROWS_MAX", 5)
    answer = memory_peak(reader, limit=0)
    assert nodes(answer) == [(0, "outer", 17, 0, 2), (1, "inner8", 9, 9, 1), (1, "inner7", 8, 8, 1)]
    assert (answer["peak_bytes"], answer["left_out"], answer["paths"]) == (45, 7, 10)


@pytest.mark.parametrize("frames", [False, True])
def test_stacks_as_deep_as_it_gets(tmp_path: Path, frames: bool) -> None:
    depth = 100_000
    events = [
        Event(f"f{at % 1000}", at, 2 * depth + 9 - at, fields={"parent": at - 1, "process": 0}) for at in range(depth)
    ]
    events.append(record(depth, 8, parent=depth - 1, stack="g;h" if frames else None))
    answer = memory_peak(trace_of(tmp_path, events), limit=0)
    assert answer["paths"] == depth + (2 if frames else 0)
    assert nodes(answer)[2][:3] == (2, "f0" if frames else "f2", 8)


def test_nothing_to_draw_is_said(tmp_path: Path) -> None:
    bare = trace_of(tmp_path / "a", [Event("op", 0, 1)])
    answer = memory_peak(bare, limit=0)
    assert (answer["nodes"], answer["devices"], answer["peak_bytes"]) == ([], [], None)
    assert "--memory" in answer["message"]
    without = trace_of(tmp_path / "b", [record(1, 5, None), record(2, -5, None)])
    assert "addresses" in memory_peak(without, limit=0)["message"]
    freed = trace_of(tmp_path / "c", [Event("op", 0, 9), record(1, -5, 1), record(5, 4, 2)])
    assert memory_peak(freed, limit=0, to_ns=3)["message"] == "no allocation was recorded in this part of the trace"
    assert memory_peak(freed, limit=0, thread="12")["message"] == "no allocation was recorded in this part of the trace"


STACKS = [None, "in;out", "in", "in;in;out"]
RECORDS = st.lists(
    st.tuples(
        *(st.integers(0, 1), st.integers(-3, 3), st.integers(0, 3), st.sampled_from([CPU, CUDA]), st.integers(-1, 2)),
        *(st.integers(0, 1), st.sampled_from(STACKS)),
    ),
    max_size=25,
)


def replayed(records: list[Any], low: int, high: int, thread: int | None) -> dict[DeviceType, tuple[int, int, dict]]:
    """Device -> (bytes, when, stack -> (bytes, blocks)) at the first moment of the most bytes."""
    calls = {-1: (), 0: ("a",), 1: ("b",), 2: ("b", "c")}
    folded = {None: (), "in;out": ("out", "in"), "in": ("in",), "in;in;out": ("out", "in")}
    held: dict[tuple[int, int, DeviceType], tuple[int, tuple[str, ...]]] = {}
    most: dict[DeviceType, tuple[int, int, dict]] = {}
    for at, (process, size, ptr, place, parent, on, stack) in enumerate(records):
        if not (ptr and size and low <= at < high):
            continue
        held.pop((process, ptr, place), None)
        if size > 0 and thread in (None, on):
            held[process, ptr, place] = (size, folded[stack] + calls[parent])
        here = [block for (_, _, where), block in held.items() if where is place]
        total = sum(size for size, _ in here)
        if total > most.get(place, (0,))[0]:
            stacks: dict[tuple[str, ...], tuple[int, int]] = {}
            for size, path in here:
                before = stacks.get(path, (0, 0))
                stacks[path] = (before[0] + size, before[1] + 1)
            most[place] = (total, at, stacks)
    return most


def own_stacks(answer: dict[str, Any]) -> dict[tuple[str, ...], int]:
    """Stack -> bytes that were allocated right in it."""
    way: list[str] = []
    found = {}
    for node in answer["nodes"]:
        way[node["depth"] :] = [node["name"]]
        if node["self_bytes"]:
            found[() if way == ["[memory]"] else tuple(way)] = node["self_bytes"]
    return found


@given(RECORDS, st.integers(0, 10), st.integers(1, 25), st.sampled_from([None, 0, 1]), st.integers(1, 9))
def test_property_a_replay_of_all_records_tells_the_same(
    tmp_path_factory: pytest.TempPathFactory, records: list[Any], low: int, lasting: int, thread: int | None, rows: int
) -> None:
    events = [Event("a", 0, 100), Event("b", 0, 100, thread=1), Event("c", 0, 100, thread=1, fields={"parent": 1})]
    for at, (process, size, ptr, place, parent, on, stack) in enumerate(records):
        made = record(at, size, ptr, place, process=process, parent=parent, stack=stack)
        made.thread = on
        events.append(made)
    want = replayed(records, low, low + lasting, thread)
    reader = trace_of(tmp_path_factory.mktemp("t"), events, rows)
    part: dict[str, Any] = {"from_ns": low, "to_ns": low + lasting}
    if thread is not None:
        part["thread"] = ("main", "12")[thread]
    names = [one["name"] for one in memory_peak(reader, limit=0, **part)["devices"]]
    assert sorted(names) == sorted(place.label for place in want)
    for place, (total, at, stacks) in want.items():
        answer = memory_peak(reader, limit=0, device=place.label, **part)
        assert (answer["peak_bytes"], answer["at_ns"]) == (total, at)
        assert own_stacks(answer) == {path: size for path, (size, _) in stacks.items()}
        assert answer["blocks"] == sum(count for _, count in stacks.values())
        roots = [node for node in answer["nodes"] if node["depth"] == 0]
        assert (sum(one["bytes"] for one in roots), sum(one["blocks"] for one in roots)) == (total, answer["blocks"])
