"""Derived lines of stored traces as JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from profd.query.timeline import timeline_lines
from profd.segments.reader import TraceReader
from profproto.xspace import xplane_pb2

from tests.support.timeline_cases import case, xspace_of
from tests.support.xspace import store


def _asked(reader: TraceReader, *wanted: str, rules: str = "current") -> list[dict[str, Any]]:
    events = []
    for count, lines in timeline_lines(reader, wanted, rules):
        some = [json.loads(line) for line in lines.splitlines()]
        assert len(some) == count
        events += some
    return events


def test_all_of_an_event(tmp_path: Path) -> None:
    reader = store(xspace_of(case("nested_roots_same_level")["input"]), tmp_path / "trace")
    assert _asked(reader, "xla-ops") == [
        {
            "plane": "/device:GPU:0",
            "line": "XLA Ops - from #7",
            "what": "xla-ops",
            "origin": "derived",
            "stream": 7,
            "start_ns": 20,
            "start_ps": 0,
            "duration_ps": 280_000,
            "name": "x",
            "long_name": "m/x",
            "group": 0,
            "step": "outer 1",
            "args": {},
        }
    ]


def test_lines_of_the_plane_precede_those_of_streams(tmp_path: Path) -> None:
    reader = store(xspace_of(case("nested_roots_same_level")["input"]), tmp_path / "trace")
    assert [(event["plane"], event["line"]) for event in _asked(reader)] == [
        ("/device:GPU:0", "Steps"),
        ("/device:GPU:0", "Launch Stats"),
        ("/device:GPU:0", "XLA Modules - from #7"),
        ("/device:GPU:0", "XLA Ops - from #7"),
        ("/host:CPU", "Steps"),
    ]


def test_by_the_rules_of_2021(tmp_path: Path) -> None:
    reader = store(xspace_of(case("nested_roots_same_level")["input"]), tmp_path / "trace")
    assert [(event["plane"], event["line"]) for event in _asked(reader, rules="classic")] == [
        ("/device:GPU:0", "Steps"),
        ("/device:GPU:0", "Launch Stats"),
        ("/device:GPU:0", "XLA Modules"),
        ("/device:GPU:0", "XLA Ops"),
    ]
    assert [event["what"] for event in _asked(reader, "steps", rules="classic")] == ["steps"]


def test_lines_that_came_with_the_file(tmp_path: Path) -> None:
    space = xplane_pb2.XSpace.FromString(xspace_of(case("tf_op_line")["input"]))
    plane = space.planes[0]
    plane.event_metadata[50].id, plane.event_metadata[50].name = 50, "then"
    plane.lines.add(id=-559038734, name="TensorFlow Ops").events.add(metadata_id=50, offset_ps=1500, duration_ps=700)
    events = _asked(store(bytes(space.SerializeToString()), tmp_path / "trace"), "ops")
    told = [[event[key] for key in ("line", "origin", "name", "start_ns", "start_ps")] for event in events]
    assert told == [
        ["Framework Ops - from #0", "derived", "Mul", 0, 0],
        ["TensorFlow Ops", "recorded", "then", 1, 500],
    ]
    assert [event["duration_ps"] for event in events] == [600, 700]


def test_numbers_beyond_63_bits(tmp_path: Path) -> None:
    given = case("launch_named_cu")["input"]
    host = {
        "name": "/host:CPU",
        "lines": [
            {"id": 1, "name": "a", "events": [_event("train", {"_r": 1, "_pt": 3}, {"_p": 2**64 - 5})]},
            {"id": 2, "name": "b", "events": [_event("l", {"_ct": 3, "correlation_id": 1}, {"_c": 2**64 - 5})]},
        ],
    }
    reader = store(xspace_of({"planes": [given["planes"][0], host]}), tmp_path / "trace")
    assert [event["name"] for event in _asked(reader, "steps")] == ["train 0", "train 0"]


def _event(name: str, numbers: dict[str, int], large: dict[str, int]) -> dict[str, Any]:
    stats = {key: {"int64": value} for key, value in numbers.items()}
    stats |= {key: {"uint64": value} for key, value in large.items()}
    return {"name": name, "offset_ps": 0, "duration_ps": 10, "stats": stats}


def test_a_trace_without_planes(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]})
    reader = store(text.encode(), tmp_path / "trace", "chrome")
    assert _asked(reader) == []


def test_operators_of_a_tpu_are_told_by_metadata(tmp_path: Path) -> None:
    space = xplane_pb2.XSpace()
    plane = space.planes.add(name="/device:TPU:0")
    plane.stat_metadata[1].id, plane.stat_metadata[1].name = 1, "tf_op"
    for number, op in enumerate(["jit(f)/a/add:add", "jit(f)/a/mul:mul"], 1):
        plane.event_metadata[number].id, plane.event_metadata[number].name = number, f"fusion.{number}"
        plane.event_metadata[number].stats.add(metadata_id=1, str_value=op)
    plane.event_metadata[3].id, plane.event_metadata[3].name = 3, "copy"
    ops = plane.lines.add(id=2, name="XLA Ops")
    for place, number in enumerate([1, 3, 2]):
        ops.events.add(metadata_id=number, offset_ps=place * 10_000, duration_ps=9000)
    waiting = plane.lines.add(id=3, name="Async XLA Ops")
    waiting.events.add(metadata_id=1, offset_ps=0, duration_ps=50_000)
    plane.event_metadata[4].id, plane.event_metadata[4].name = 4, "jit_f"
    plane.lines.add(id=1, name="XLA Modules").events.add(metadata_id=4, offset_ps=0, duration_ps=30_000)
    events = _asked(store(bytes(space.SerializeToString()), tmp_path / "trace"))
    assert [(event["line"], event["origin"], event["name"], event["duration_ps"]) for event in events] == [
        ("Framework Name Scope", "derived", "jit(f)", 29_000),
        ("Framework Name Scope", "derived", "a", 28_000),
        ("Framework Ops", "derived", "add", 9_000),
        ("Framework Ops", "derived", "mul", 9_000),
        ("XLA Modules", "recorded", "jit_f", 30_000),
    ]
