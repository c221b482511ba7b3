"""The steps of a trace, with numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.derive.steps import Steps
from profd.events import Kind
from profd.query import open_trace
from profd.query.steps import _BusyInSteps, outliers, steps_of_trace
from profd.segments.reader import TraceReader

from tests.support.tables import Event, store, table_of

STEP = Kind.USER_ANNOTATION


def two_steps() -> list[Event]:
    return [
        Event("ProfilerStep#1", 0, 100, STEP),
        Event("aten::mm", 10, 60),
        Event("aten::addmm", 40, 70, thread=1),
        Event("cudaLaunchKernel", 20, 30, Kind.RUNTIME),
        Event("cudaStreamSynchronize", 80, 90, Kind.RUNTIME),
        Event("gemm", 35, 75, Kind.KERNEL, 9),
        Event("copy", 70, 120, Kind.MEMCPY, 9),  # goes on in the next step
        Event("ProfilerStep#2", 100, 300, STEP),
        Event("cudaLaunchKernel", 100, 105, Kind.RUNTIME),
        Event("cudaMemcpyAsync", 110, 115, Kind.RUNTIME),
        Event("late", 290, 400, Kind.KERNEL, 9),
        Event("cudaLaunchKernel", 310, 320, Kind.RUNTIME),  # in no step
    ]


@pytest.mark.parametrize("rows", [2, 100])
def test_each_step_by_hand(rows: int, tmp_path: Path) -> None:
    answer = steps_of_trace(TraceReader(store(table_of(two_steps()), tmp_path / "t", rows=rows)))
    assert (answer["n"], answer["from"], answer["message"]) == (2, "ProfilerStep", None)
    first, second = answer["steps"]
    assert first == {
        "number": 1,
        "name": "ProfilerStep#1",
        "start_ns": 0,
        "duration_ns": 100,
        "device_busy_ns": 65,  # 35..100
        "device_idle_ns": 35,
        "launches": 1,
        "host_share": 0.7,  # 10..70 and 80..90
        "launch_delay_p50_ns": None,  # nothing is linked
        "launch_delay_max_ns": None,
        "ops": None,  # of XSpaces alone
        "outlier": False,
    }
    assert (second["device_busy_ns"], second["device_idle_ns"]) == (30, 170)  # 100..120 and 290..300
    assert (second["launches"], second["host_share"]) == (2, 0.05)


def test_accumulated_gradients_are_one_step(tmp_path: Path) -> None:
    """Three passes forward and backward between two updates; SDK and profiler steps are not there to say more."""
    events = []
    for update in range(3):
        at = 1000 * update
        for micro in range(3):
            events += [
                Event("forward", at + 300 * micro, at + 300 * micro + 100, STEP),
                Event("cudaLaunchKernel", at + 300 * micro + 50, at + 300 * micro + 60, Kind.RUNTIME),
                Event(
                    "autograd::engine::evaluate_function: MmBackward0", at + 300 * micro + 100, at + 300 * micro + 200
                ),
            ]
        events.append(Event("Optimizer.step#Adam.step", at + 900, at + 950, STEP))
        events.append(Event("Optimizer.zero_grad#Adam.zero_grad", at + 950, at + 960, STEP))
    answer = steps_of_trace(TraceReader(store(table_of(events), tmp_path / "t")))
    assert (answer["n"], answer["from"]) == (2, "Optimizer.step")
    assert [(step["start_ns"], step["duration_ns"], step["launches"]) for step in answer["steps"]] == [
        (950, 1000, 3),
        (1950, 1000, 3),
    ]


@pytest.mark.parametrize("rows", [2, 100])
def test_launch_delays_by_hand(rows: int, tmp_path: Path) -> None:
    events = [
        Event("ProfilerStep#1", 0, 100, STEP),
        Event("cudaLaunchKernel", 10, 12, Kind.RUNTIME),
        Event("cudaLaunchKernel", 20, 22, Kind.RUNTIME),
        Event("a", 40, 50, Kind.KERNEL, 9, fields={"linked": 1}),  # 30 after its launch
        Event("b", 60, 70, Kind.KERNEL, 9, fields={"linked": 2}),  # 40
        Event("alone", 80, 90, Kind.KERNEL, 9),
        Event("cudaLaunchKernel", 90, 95, Kind.RUNTIME),
        Event("ProfilerStep#2", 100, 300, STEP),
        Event("late", 190, 200, Kind.KERNEL, 9, fields={"linked": 6}),  # 100, of the step in which it was launched
        Event("skewed", 200, 210, Kind.KERNEL, 9, fields={"linked": 10}),  # before its launch: 0
        Event("cudaLaunchKernel", 205, 215, Kind.RUNTIME),
    ]
    first, second = steps_of_trace(TraceReader(store(table_of(events), tmp_path / "t", rows=rows)))["steps"]
    assert (first["launch_delay_p50_ns"], first["launch_delay_max_ns"]) == (40, 100)
    assert (second["launch_delay_p50_ns"], second["launch_delay_max_ns"]) == (0, 0)


def test_without_device_records_nothing_is_said_of_devices(tmp_path: Path) -> None:
    events = [Event("ProfilerStep#1", 0, 100, STEP), Event("aten::mm", 50, 75), Event("ProfilerStep#2", 100, 100, STEP)]
    first, second = steps_of_trace(TraceReader(store(table_of(events), tmp_path / "t")))["steps"]
    assert (first["device_busy_ns"], first["device_idle_ns"], first["host_share"]) == (None, None, 0.25)
    assert (second["duration_ns"], second["host_share"]) == (0, None)


def optimizer(count: int) -> list[Event]:
    marks = [Event("Optimizer.step#SGD.step", 100 * n + 90, 100 * n + 100, STEP) for n in range(count)]
    return [Event("aten::mm", 5, 20), *marks]


@pytest.mark.parametrize("last", [400, None])
def test_of_an_attached_process_the_steps_asked_for_are_the_whole_ones(last: int | None, tmp_path: Path) -> None:
    """It begins to record within a step, and ends from within the last update, which may have no end of its own."""
    events = [*optimizer(3), Event("Optimizer.step#SGD.step", 390, last, STEP), Event("aten::add_", 391, 400)]
    trace = store(table_of(events), tmp_path / "t", source="sdk", options={"iterations": 3})
    steps = steps_of_trace(TraceReader(trace))["steps"]
    assert [(step["start_ns"], step["duration_ns"]) for step in steps] == [(100, 100), (200, 100), (300, 100)]
    assert open_trace(trace).summary()["steps"]["n"] == 3


def test_a_window_that_ends_within_an_update_ends_no_step(tmp_path: Path) -> None:
    events = [*optimizer(3), Event("Optimizer.step#SGD.step", 390, None, STEP), Event("aten::add_", 391, 400)]
    trace = store(table_of(events), tmp_path / "t", source="sdk", options={"duration_ns": 395})
    assert open_trace(trace).summary()["steps"]["n"] == 2


def test_with_iterations_asked_of_kineto_the_first_step_is_whole(tmp_path: Path) -> None:
    plain = store(table_of(optimizer(3)), tmp_path / "plain", options={"duration_ns": 300})
    asked = store(table_of(optimizer(3)), tmp_path / "asked", source="kineto", options={"iterations": 3})
    starts = [step["start_ns"] for step in steps_of_trace(TraceReader(plain))["steps"]]
    assert starts == [100, 200]
    answer = steps_of_trace(TraceReader(asked))
    assert [(step["start_ns"], step["duration_ns"]) for step in answer["steps"]] == [(5, 95), (100, 100), (200, 100)]
    assert answer["from"] == "Optimizer.step"
    assert open_trace(asked).summary()["steps"]["n"] == 3
    assert open_trace(plain).summary()["steps"]["n"] == 2


def test_none_found_is_said(tmp_path: Path) -> None:
    answer = steps_of_trace(TraceReader(store(table_of([Event("op", 0, 10)]), tmp_path / "t")))
    assert (answer["n"], answer["from"], answer["steps"]) == (0, None, [])
    assert answer["message"].startswith("none found")
    sampled = store(table_of([Event("f", 0, 10, Kind.SAMPLE)]), tmp_path / "s", source="pyspy")
    assert "samples" in steps_of_trace(TraceReader(sampled))["message"]


SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=12)


@given(spans=SPANS, steps=SPANS, cut=st.integers(0, 12))
def test_cover_is_that_of_counting_every_nanosecond(
    spans: list[tuple[int, int]], steps: list[tuple[int, int]], cut: int
) -> None:
    spans, steps = sorted(spans), sorted(steps)
    begin = np.array([start for start, _ in steps], dtype=np.int64)
    length = np.array([lasting for _, lasting in steps], dtype=np.int64)
    busy = _BusyInSteps(Steps(begin, begin + length, [], begin.astype(np.int32), ""))
    for part in (spans[:cut], spans[cut:]):
        busy.add(*(np.array([span[side] for span in part], dtype=np.int64) for side in (0, 1)))
    covered = {ns for start, lasting in spans for ns in range(start, start + lasting)}
    assert busy.within.tolist() == [len(covered & set(range(start, start + lasting))) for start, lasting in steps]


@pytest.mark.parametrize(
    ("lasting", "slow"),
    [
        ([100] * 20, []),
        ([100] * 19 + [104], []),  # not by 5 %
        ([100] * 19 + [106], [19]),
        ([98, 99, 100, 101, 102] * 4 + [103, 106], [21]),  # within 5 median deviations, and beyond
        ([80, 90, 100, 110, 120] * 4 + [150], []),
        ([80, 90, 100, 110, 120] * 4 + [151], [20]),
        ([100, 200] * 10, []),  # half of them is what is usual
        ([100] * 10 + [30], []),  # fast ones are none
        ([100, 100, 100, 900], []),  # too few to know
    ],
)
def test_outliers_by_hand(tmp_path: Path, lasting: list[int], slow: list[int]) -> None:
    ends = np.cumsum(lasting).tolist()
    events = [
        Event(f"ProfilerStep#{n}", end - lasts, end, STEP)
        for n, (end, lasts) in enumerate(zip(ends, lasting, strict=True))
    ]
    answer = steps_of_trace(TraceReader(store(table_of(events), tmp_path / "t")))
    assert [step["number"] for step in answer["steps"] if step["outlier"]] == slow
    summary = open_trace(tmp_path / "t").summary()["steps"]["outliers"]
    if len(lasting) < 5:
        assert answer["outliers"] is summary is None
    else:
        assert answer["outliers"]["n"] == len(slow)
        assert summary == {**answer["outliers"], "numbers": slow}


def test_many_outliers_are_named_up_to_a_limit(tmp_path: Path) -> None:
    lasting = [100] * 100 + [500] * 60
    ends = np.cumsum(lasting).tolist()
    events = [
        Event(f"ProfilerStep#{n}", end - lasts, end, STEP)
        for n, (end, lasts) in enumerate(zip(ends, lasting, strict=True))
    ]
    told = open_trace(store(table_of(events), tmp_path / "t")).summary()["steps"]["outliers"]
    assert (told["n"], told["numbers"]) == (60, list(range(100, 132)))


def test_durations_that_go_around_are_no_outliers() -> None:
    edge = np.array([np.iinfo(np.int64).max] * 6 + [0], dtype=np.int64)
    assert outliers(edge) is not None
