"""Samples that `top` leaves out, and `top --raw` has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from profd.events import Kind, Tracks
from profd.model.run_times import RunTimes, ThreadTimes
from profd.query import open_trace

from tests.support.tables import Event, store, table_of

TRACKS = Tracks(
    processes=[{"id": 7}],
    threads=[{"id": 7, "process": 0}, {"id": "samples of 7", "process": 0}, {"id": 8, "process": 0}],
)
SAMPLES = [Event("loop", 0, 90, Kind.SAMPLE, 1), Event("wait", 0, 90, Kind.SAMPLE, 2)]
ONE_RAN = RunTimes(lasted_ns=9, threads=[ThreadTimes(7, "x", 9, 9, 0)], idle=1, idle_ids=[(8, 8)])


def names(events: list[Event], path: Path, *, raw: bool = False, **meta: Any) -> set[str]:
    trace = open_trace(store(table_of(events), path, tracks=TRACKS, capture="c1", source="sdk", **meta))
    return {row.name for row in trace.key_averages(raw=raw)}


@pytest.mark.parametrize(
    ("operators", "meta", "expected"),
    [
        (False, {}, {"loop", "wait"}),
        (True, {}, set()),
        (True, {"options": {"sample_hz": 50.0}}, {"loop", "wait"}),
        (False, {"run_times": ONE_RAN}, {"loop"}),
        (
            False,
            {"run_times": RunTimes(lasted_ns=9, idle=2, idle_ids=[(7, 9)])},
            {"loop", "wait"},
        ),  # all slept: that is the answer
        (False, {"run_times": RunTimes(lasted_ns=9, threads=ONE_RAN.threads)}, {"loop", "wait"}),  # the other one ended
    ],
)
def test_what_is_left_out(operators: bool, meta: dict[str, Any], expected: set[str], tmp_path: Path) -> None:
    events = [*SAMPLES, *([Event("aten::mm", 0, 50)] if operators else [])]
    ops = {"aten::mm"} if operators else set()
    assert names(events, tmp_path / "shown", **meta) == expected | ops
    assert names(events, tmp_path / "raw", raw=True, **meta) == {"loop", "wait"} | ops
