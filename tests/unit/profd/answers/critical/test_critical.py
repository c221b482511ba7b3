"""Paths that can be walked by hand; times in us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from profd.answers.critical.answer import OUTSIDE, critical
from profd.events import Kind

from tests.support.stepped_traces import BACKWARD, DEVICE, STEP_US, US, call, kernel, launched, stored, training


def answer(rows: Any, path: Path, **options: Any) -> dict[str, Any]:
    return critical(stored(training(rows), path), **options)


def on_path(found: dict[str, Any]) -> dict[str, float]:
    """Of a step, in us."""
    return {row["name"]: row["path_ns"] / US / found["steps"]["n"] for row in found["rows"]}


def test_without_device_work_the_host_is_all(tmp_path: Path) -> None:
    found = answer(lambda n: [call("aten::mm", n * STEP_US + 100, 700)], tmp_path)
    assert found["path"] == {
        "duration_ns": 5000 * US,
        "host_ns": 5000 * US,
        **dict.fromkeys(("device_ns", "launch_ns", "return_ns", "gap_ns"), 0),
    }
    assert on_path(found) == {"aten::mm": 700, OUTSIDE: 300}
    assert [row["without_ns"] for row in found["rows"]] == [1500 * US, 3500 * US]
    assert found["without_waits_ns"] is None
    assert found["steps"] == {"n": 5, "first": 1, "last": 5, "from": "ProfilerStep"}


def waiting(number: int) -> list[Any]:
    """The host launches, works beside the device for less than it, and waits for it."""
    at = number * STEP_US
    return [
        *kernel(at + 110, 600, launch=at + 100),
        call("aten::mul", at + 120, 300),
        call("cudaStreamSynchronize", at + 430, 300, Kind.RUNTIME),
    ]


def test_where_the_host_waits_the_device_sets_the_pace(tmp_path: Path) -> None:
    found = answer(waiting, tmp_path)
    assert found["path"] == {
        "duration_ns": 5000 * US,
        "host_ns": 5 * 370 * US,  # before the launch, and after the wait
        "device_ns": 5 * 600 * US,
        "launch_ns": 5 * 10 * US,
        "return_ns": 5 * 20 * US,
        "gap_ns": 0,
    }
    assert on_path(found) == {"gemm": 600, OUTSIDE: 370}
    gemm, outside = found["rows"]
    assert (gemm["where"], gemm["calls"], outside["where"], outside["calls"]) == ("kernel", 5, "host", None)
    # Without the kernel the wait at 430 had returned after 20.
    assert gemm["without_ns"] == (5000 - 5 * 280) * US
    # Without waits it had gone on at 430: five steps of 700, and 10 until the work of the last one has ended.
    assert found["without_waits_ns"] == (5 * 700 + 10) * US


def test_work_that_ends_after_the_steps_ends_the_path(tmp_path: Path) -> None:
    """Nobody waits: the host runs ahead, and the queue of the device is what lasts."""
    rows = [kernel(n * 2 * STEP_US + 10, 2 * STEP_US, launch=n * STEP_US + 5) for n in range(6)]
    found = answer(lambda n: rows[n], tmp_path)
    assert found["path"]["duration_ns"] == (12_010 - 1000) * US
    assert found["path"]["device_ns"] == (12_010 - 1000) * US
    assert on_path(found)["gemm"] == (12_010 - 1000) / 5


def test_a_call_that_waits_for_another_thread_is_what_that_one_does(tmp_path: Path) -> None:
    """As `backward()` waits for the thread of autograd."""

    def rows(number: int) -> list[Any]:
        at = number * STEP_US
        node = call("autograd::engine::evaluate_function: MmBackward0", at + 200, 500, thread=BACKWARD)
        inner = call("aten::mm", at + 250, 400, thread=BACKWARD, parent=node)
        return [call("backward", at + 150, 600), node, inner]

    found = answer(rows, tmp_path)
    assert on_path(found) == {
        "aten::mm": 400,
        OUTSIDE: 400,
        "autograd::engine::evaluate_function: MmBackward0": 100,
        "backward": 100,
    }


def test_a_copy_that_blocks_is_a_wait(tmp_path: Path) -> None:
    def rows(number: int) -> list[Any]:
        at = number * STEP_US
        copy = call("Memcpy DtoH", at + 110, 480, Kind.MEMCPY, DEVICE)
        begun = call("cudaMemcpyAsync", at + 100, 500, Kind.RUNTIME)
        copy.fields["linked"] = begun
        return [begun, copy]

    found = answer(rows, tmp_path)
    assert [(row["where"], row["name"]) for row in found["rows"]] == [("host", OUTSIDE), ("copy", "Memcpy DtoH")]
    assert on_path(found)["Memcpy DtoH"] == 480


def test_work_that_waited_for_another_stream(tmp_path: Path) -> None:
    def rows(number: int) -> list[Any]:
        at = number * STEP_US
        first = call("gemm", at + 110, 300, Kind.KERNEL, DEVICE)
        second = call("ncclKernel_AllReduce", at + 412, 300, Kind.KERNEL, DEVICE + 1)
        wait = call("cudaDeviceSynchronize", at + 130, 590, Kind.RUNTIME)
        return [first, launched(first, at + 100), second, launched(second, at + 105), wait]

    found = answer(rows, tmp_path)
    assert on_path(found) == {"gemm": 300, "ncclKernel_AllReduce": 300, OUTSIDE: 380}
    assert {row["name"]: row["where"] for row in found["rows"]}["ncclKernel_AllReduce"] == "collective"
    assert found["path"]["gap_ns"] == 5 * 2 * US


def test_limit(tmp_path: Path) -> None:
    rows = [call(f"op{place}", 10 * place, 10) for place in range(40)]
    events = training(lambda n: [call(row.name, n * STEP_US + row.start / US, 10) for row in rows])
    trace = stored(events, tmp_path)
    few = critical(trace, limit=3)
    assert (len(few["rows"]), few["left_out"]) == (3, 38)
    every = critical(trace, limit=0)
    assert (len(every["rows"]), every["left_out"]) == (41, 0)
    assert [row["without_ns"] is None for row in every["rows"]] == [False] * 5 + [True] * 36


def test_too_few_steps(tmp_path: Path) -> None:
    found = critical(stored(training(lambda n: [], steps=1), tmp_path))
    assert (found["status"], found["path"], found["rows"]) == ("not enough data", None, [])
    assert "the first warms up" in found["message"]
