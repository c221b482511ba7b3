"""Derived lines of PyTorch traces: scopes from modules, operators from launches, steps from ProfilerStep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from profd.events import Kind, Tracks
from profd.query.timeline import timeline_lines
from profd.segments.reader import TraceReader

from tests.support.tables import Event, store, table_of

PYTHON, LAUNCH = Kind.PYTHON_FUNCTION, Kind.RUNTIME
TRACKS = Tracks(
    [{"id": 1}, {"id": 0}],
    [{"id": 1, "process": 0}, {"id": 7, "process": 1, "name": "stream 7"}, {"id": 8, "process": 1}],
)


def on_host(name: str, start: int, end: int, kind: Kind = Kind.CPU_OP) -> Event:
    return Event(name, start, end, kind, fields={"process": 0})


def kernel(name: str, start: int, end: int, launch: int | None, stream: int = 1, kind: Kind = Kind.KERNEL) -> Event:
    fields = {"process": 1, "device": 0} | ({} if launch is None else {"linked": launch})
    return Event(name, start, end, kind, stream, fields=fields)


EVENTS = [
    on_host("ProfilerStep#1", 0, 100, Kind.USER_ANNOTATION),  # row 0
    on_host("nn.Module: Net_0", 1, 60, PYTHON),
    on_host("nn.Module: Linear_0", 2, 20, PYTHON),
    on_host("aten::addmm", 3, 19),
    on_host("cudaLaunchKernel", 4, 5, LAUNCH),  # row 4
    on_host("cudaLaunchKernel", 6, 7, LAUNCH),
    on_host("aten::relu", 30, 40),
    on_host("cudaLaunchKernel", 31, 32, LAUNCH),  # row 7
    on_host("ProfilerStep#2", 100, 200, Kind.USER_ANNOTATION),
    on_host("aten::relu", 110, 120),
    on_host("cudaLaunchKernel", 111, 112, LAUNCH),  # row 10
    kernel("gemm", 201, 211, 4),
    kernel("gemm_tail", 212, 214, 5),
    kernel("relu", 220, 230, 7),
    kernel("copy", 222, 225, None, stream=2, kind=Kind.MEMCPY),
    kernel("relu", 240, 250, 10),
]


def asked(reader: TraceReader, *wanted: str, rules: str = "") -> list[tuple[Any, ...]]:
    events = [json.loads(line) for _, lines in timeline_lines(reader, wanted, rules) for line in lines.splitlines()]
    return [(e["line"], e["name"], e["start_ns"], e["start_ns"] + e["duration_ps"] // 1000, e["step"]) for e in events]


@pytest.fixture(params=[3, 100])
def reader(request: pytest.FixtureRequest, tmp_path: Path) -> TraceReader:
    return TraceReader(store(table_of(EVENTS), tmp_path / "t", rows=request.param, tracks=TRACKS))


def test_operators_and_scopes_by_stream(reader: TraceReader) -> None:
    assert asked(reader, "ops") == [
        ("Framework Ops - from #7", "addmm", 201, 214, "ProfilerStep#1"),
        ("Framework Ops - from #7", "relu", 220, 230, "ProfilerStep#1"),
        ("Framework Ops - from #7", "relu", 240, 250, "ProfilerStep#2"),
    ]
    scopes = {(name, start, end) for _, name, start, end, _ in asked(reader, "scopes")}
    assert scopes == {("Net_0", 201, 230), ("Linear_0", 201, 214)}


def test_steps_are_when_the_work_of_a_step_ran(reader: TraceReader) -> None:
    assert asked(reader, "steps") == [
        ("Steps", "ProfilerStep#1", 201, 230, "ProfilerStep#1"),
        ("Steps", "ProfilerStep#2", 240, 250, "ProfilerStep#2"),
    ]


def test_by_the_rules_of_2021_too(reader: TraceReader) -> None:
    lines = {line for line, *_ in asked(reader, rules="classic")}
    assert lines == {"Steps", "TensorFlow Name Scope", "TensorFlow Ops"}


def test_without_work_on_a_device_there_are_no_lines(tmp_path: Path) -> None:
    trace = TraceReader(store(table_of([on_host("aten::mm", 0, 5)]), tmp_path / "t", tracks=TRACKS))
    assert asked(trace) == []
    assert asked(trace, rules="classic") == []
