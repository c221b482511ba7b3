"""The summary of a trace, and the jobs that workers run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from profd.errors import BadInput, NotFound
from profd.events import Kind
from profd.model.capture import Cost, Loss, Phase
from profd.query import open_trace
from profd.questions.jobs import find

from tests.support.tables import Event, store, table_of

STEP = Kind.USER_ANNOTATION


summary, top, tree = map(find, ("summary", "top", "tree"))


def quiet(what: str, share: float) -> None:
    """Progress nobody looks at."""


def training(rows: int, path: Path, **meta: object) -> Path:
    events = [Event(f"ProfilerStep#{n}", n * 1000, n * 1000 + 500 + n, STEP) for n in range(20)]
    events += [Event(f"op{n}", n * 1000 + 10, n * 1000 + 20 + n) for n in range(8)]
    events += [Event("gemm", n * 1000 + 100, n * 1000 + 400, Kind.KERNEL, 9, fields={"device": 3}) for n in range(20)]
    events += [Event("ProfilerStep#0", 100, 19400, Kind.GPU_USER_ANNOTATION, 9, fields={"device": 3})]
    return store(table_of(events), path, rows=rows, **meta)


@pytest.mark.parametrize("rows", [7, 1000])
def test_a_training_run(rows: int, tmp_path: Path) -> None:
    answer = open_trace(training(rows, tmp_path / "t", options={"duration_ns": 10_000}, host="n1", rank=2)).summary()
    assert answer["window"] == {
        "asked_ns": 10_000,
        "asked_iterations": None,
        "start_ns": 0,
        "end_ns": 19_519,
        "recorded_ns": 19_519,
        "window_ns": 19_519,
    }
    assert answer["steps"] == {
        "n": 20,
        "p50_ns": 509,
        "p95_ns": 518,
        "max_ns": 519,
        "from": "ProfilerStep",
        "message": None,
        "outliers": {"n": 0, "above_ns": 534, "median_ns": 509, "deviation_ns": 5, "numbers": []},
    }
    assert answer["devices"] == [
        {"device_type": "CUDA", "device": 3, "busy_ns": 6000, "idle_ns": 13_519, "busy_share": 6000 / 19_519}
    ]
    assert (answer["gpus"], answer["host"], answer["rank"], answer["pid"]) == ([3], "n1", 2, None)
    assert [row["name"] for row in answer["top"]] == ["ProfilerStep*", "gemm", "op7", "op6", "op5"]
    assert answer["next"] == "profctl top t1"
    assert json.loads(json.dumps(answer)) == answer


def test_optimizer_steps_that_cross_segments(tmp_path: Path) -> None:
    events = [Event("Optimizer.step#SGD.step", n * 100, n * 100 + 10, STEP) for n in range(5)]
    answer = open_trace(store(table_of(events), tmp_path / "t", rows=2)).summary()
    assert (answer["steps"]["n"], answer["steps"]["from"]) == (4, "Optimizer.step")
    assert answer["steps"]["p50_ns"] == 100


def test_no_steps_are_said_not_guessed(tmp_path: Path) -> None:
    steps = open_trace(store(table_of([Event("op", 0, 10)]), tmp_path / "t")).summary()["steps"]
    assert (steps["n"], steps["p50_ns"], steps["from"]) == (0, None, None)
    assert steps["message"].startswith("none found")
    sampled = store(table_of([Event("f", 0, 10, Kind.SAMPLE)]), tmp_path / "s", source="pyspy")
    assert "samples" in open_trace(sampled).summary()["steps"]["message"]
    missed = store(table_of([Event("f", 0, 10, Kind.SAMPLE)]), tmp_path / "m", not_honoured=["torch: no observer"])
    assert "with operators only" in open_trace(missed).summary()["steps"]["message"]


def test_what_the_capture_left_behind_comes_along(tmp_path: Path) -> None:
    path = store(
        table_of([Event("cudaLaunchKernel", 0, 10, Kind.RUNTIME)]),
        tmp_path / "t",
        lost=[Loss("decode", "bad_time", 3)],
        not_honoured=["memory: not on demand"],
        warnings=["slow"],
        truncated="cut off at byte 9",
        cost=Cost("measured", 1.02, None, "two windows"),
        waterfall=[Phase("poll wait", 5)],
    )
    answer = open_trace(path).summary()
    assert answer["lost"] == [{"stage": "decode", "reason": "bad_time", "count": 3}]
    assert answer["not_honoured"] == ["memory: not on demand"]
    assert answer["warnings"][:2] == ["slow", "cut off at byte 9"]
    assert answer["warnings"][2].startswith("1 launches were recorded")
    assert answer["cost"] == {"how": "measured", "step_ratio": 1.02, "seconds": None, "detail": "two windows"}
    assert answer["waterfall"] == [{"name": "poll wait", "duration_ns": 5}]


def test_an_empty_trace(tmp_path: Path) -> None:
    answer = open_trace(store(table_of([]), tmp_path / "t")).summary()
    assert (answer["events"], answer["top"], answer["devices"]) == (0, [], [])
    assert answer["window"]["recorded_ns"] is None


def test_jobs(tmp_path: Path) -> None:
    directory = str(training(11, tmp_path / "t"))
    rows = top({"trace_dir": directory, "limit": 2, "sort_by": "count"}, [], quiet)["value"]
    assert [row["name"] for row in rows] == ["ProfilerStep*", "gemm"]
    assert len(top({"trace_dir": directory}, [], quiet)["value"]) == 11
    assert len(top({"trace_dir": directory, "raw": True}, [], quiet)["value"]) == 30
    assert summary({"trace_dir": directory}, [], quiet)["value"]["events"] == 49
    with (tmp_path / "lines").open("wb") as out:
        assert tree({"trace_dir": directory, "max_depth": 0}, [out.fileno()], quiet) == {"rows": 49}
    assert len((tmp_path / "lines").read_bytes().splitlines()) == 49


def test_questions_that_cannot_be_answered(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        top({"trace_dir": str(tmp_path / "gone")}, [], quiet)
    with pytest.raises(BadInput, match="sort by one of"):
        top({"trace_dir": str(tmp_path / "gone"), "sort_by": "speed"}, [], quiet)
    with pytest.raises(BadInput, match="limit must be a number"):
        top({"trace_dir": str(tmp_path / "gone"), "limit": -1}, [], quiet)


def test_values_that_the_host_read_are_counted(tmp_path: Path) -> None:
    events = [Event(f"ProfilerStep#{n}", n * 100, n * 100 + 90, STEP) for n in range(4)]
    events += [Event("aten::_local_scalar_dense", n * 100 + 10, n * 100 + 15) for n in range(4)]
    events += [Event("aten::_local_scalar_dense", 390, None)]
    store(table_of(events), tmp_path / "t", rows=3)
    assert open_trace(tmp_path / "t").summary()["host_reads"] == {"calls": 5, "per_step": 1.25, "total_ns": 20}
    store(table_of(events[4:]), tmp_path / "no-steps")
    assert open_trace(tmp_path / "no-steps").summary()["host_reads"]["per_step"] is None
    store(table_of(events[:4]), tmp_path / "none")
    assert open_trace(tmp_path / "none").summary()["host_reads"] is None


def test_the_longest_of_many_slow_steps_are_named(tmp_path: Path) -> None:
    lasting = [100] * 200 + [120] * 40 + [900] * 3
    events = [Event(f"ProfilerStep#{n}", n * 1000, n * 1000 + each, STEP) for n, each in enumerate(lasting)]
    store(table_of(events), tmp_path / "t")
    named = open_trace(tmp_path / "t").summary()["steps"]["outliers"]["numbers"]
    assert (len(named), named[-3:]) == (32, [240, 241, 242])
