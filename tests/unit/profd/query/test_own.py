"""Threads that profd has started in a process are not the job's: answers leave them out, and say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from profd.events import DeviceType, Kind, Tracks
from profd.model.run_times import RunTimes, ThreadTimes
from profd.query.averages import Grouping, averages_of_trace
from profd.query.merged import merged_tree
from profd.query.merged_diff import merged_diff
from profd.query.part import Part, part_of
from profd.query.top import top
from profd.query.tree import tree_lines
from profd.segments.reader import TraceReader

from tests.support.tables import Event, store, table_of

JOB, HOOKS, SAMPLES, STREAM = range(4)
TRACKS = Tracks(
    [{"id": 1}],
    [
        {"id": 7, "process": 0, "name": "MainThread"},
        {"id": 9, "process": 0, "name": "Dummy-1"},  # as Python names it
        {"id": "samples of 9", "process": 0, "name": "Dummy-1 (samples)"},
        {"id": 20, "process": 0},
    ],
)
BY_KERNEL = RunTimes(lasted_ns=100, threads=[ThreadTimes(9, "profd-agent", 100, 10, 0)])
EVENTS = [
    Event("step", 0, 60, Kind.PYTHON_FUNCTION, JOB),
    Event("wait", 10, 30, Kind.RUNTIME, JOB, fields={"parent": 0}),
    Event("wait", 15, 90, Kind.RUNTIME, HOOKS),
    Event("flush", 20, 40, Kind.OVERHEAD, HOOKS),
    Event("its marker", 50, 70, Kind.KERNEL, STREAM, device_type=DeviceType.CUDA, fields={"linked": 2, "parent": 2}),
    Event("armed", 91, 99, Kind.SAMPLE, SAMPLES),
]
ALL, OF_JOB = {"step", "wait", "flush", "its marker", "armed"}, {"step", "wait"}


def trace_of(folder: Path, events: list[Event] = EVENTS, **meta: Any) -> TraceReader:
    changes = {"tracks": TRACKS, "run_times": BY_KERNEL, "options": {"sample_hz": 100}, **meta}
    return TraceReader(store(table_of(events), folder / "t", rows=4, **changes))


def tops(reader: TraceReader, *, raw: bool = False, **part: Any) -> dict[str, tuple[int, int]]:
    rows = averages_of_trace(reader, raw=raw, grouping=Grouping(), part=part_of(reader, **part))
    return {row.name: (row.count, row.cpu_time_total_ns + row.device_time_total_ns) for row in rows}


def lines(reader: TraceReader, **asked: Any) -> set[str]:
    return {json.loads(line)["name"] for _, some in tree_lines(reader, **asked) for line in some.splitlines()}


def test_top_counts_the_jobs_calls_alone(tmp_path: Path) -> None:
    """GIVEN a call of the same name on a thread of profd WHEN the job's are added up THEN this one adds nothing."""
    reader = trace_of(tmp_path)
    assert tops(reader) == {"step": (1, 60), "wait": (1, 20)}
    assert tops(reader, from_ns=0, to_ns=25) == {"step": (1, 25), "wait": (1, 15)}
    assert tops(reader, raw=True).keys() == ALL
    assert tops(reader, raw=True, from_ns=0, to_ns=100).keys() == ALL


def test_the_question_top_is_about_the_job_however_it_is_answered(tmp_path: Path) -> None:
    """Stored trees and sums may answer, too: of a trace without samples, and without looks at its threads."""
    reader = trace_of(tmp_path, events=EVENTS[:-1])
    asked = {"group_by": "", "group_by_input_shape": False, "group_by_stack_n": 0, "with_backward": False}
    for raw, names in ((False, OF_JOB), (True, ALL - {"armed"})):
        assert {row["name"] for row in top(reader, limit=0, sort_by="name", raw=raw, **asked)} == names


def test_the_trees_are_the_jobs(tmp_path: Path) -> None:
    reader = trace_of(tmp_path)
    merged = merged_tree(reader, limit=0)
    assert ({node["name"] for node in merged["nodes"]}, merged["own_threads"]) == (OF_JOB, 1)
    assert lines(reader) == OF_JOB
    assert {node["name"] for node in merged_diff(reader, reader, limit=0)["nodes"]} == OF_JOB


@pytest.mark.parametrize("thread", ["profd-agent", "9", "Dummy-1"])
def test_a_thread_that_is_named_is_shown(thread: str, tmp_path: Path) -> None:
    reader = trace_of(tmp_path)
    assert {"wait", "flush", "its marker"} <= lines(reader, thread=thread)
    assert "flush" in tops(reader, thread=thread)
    merged = merged_tree(reader, limit=0, thread=thread)
    assert ("flush" in {node["name"] for node in merged["nodes"]}, merged["own_threads"]) == (True, 0)


def test_a_row_that_is_named_is_shown(tmp_path: Path) -> None:
    assert lines(trace_of(tmp_path), from_row=2) == {"wait", "its marker"}


def test_without_threads_of_profd_nothing_is_left_out(tmp_path: Path) -> None:
    reader = trace_of(tmp_path, run_times=RunTimes())
    assert merged_tree(reader, limit=0)["own_threads"] == 0
    assert lines(reader) == ALL
    assert averages_of_trace(reader, raw=False, grouping=Grouping(), part=Part())
