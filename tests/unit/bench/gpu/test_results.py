"""Result files: what is written is read, and what is no result is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import machine, overhead
from bench.gpu.coexist import judge
from bench.gpu.results import FOLDER, BadResult, Check, Result, read, verified_row
from bench.gpu.statistics import Ratio

MACHINE = {
    "driver": "580.65.06",
    "gpus": ["NVIDIA H100 80GB HBM3"],
    "packages": {"torch": "2.13.0"},
    "python": "3.11.7",
    "date": "2026-11-22",
}


def test_written_and_read(tmp_path: Path) -> None:
    result = Result("truth", dict(MACHINE), [Check("kernels", True, "600"), Check("theirs", None)], {"cuda": "13.0"})
    path = result.write(tmp_path)
    assert path.name == "truth-nvidia-h100-80gb-hbm3-2026-11-22.json"
    assert read(path) == result
    row = "| truth | 2.13.0 | 13.0 | 580.65.06 | NVIDIA H100 80GB HBM3 | 2026-11-22 | passed | `x.json` |"
    assert verified_row(result, "x.json") == row
    result.data["cuda"] = {"kernels": 9}  # a way of recording
    assert verified_row(result, "x.json") == row.replace("| 13.0 |", "| - |")


@pytest.mark.parametrize(
    ("checks", "passed"),
    [([], False), ([None], False), ([True, None], True), ([True, False], False)],
)
def test_nothing_looked_at_is_nothing_passed(checks: list[bool | None], passed: bool) -> None:
    assert Result("truth", dict(MACHINE), [Check("x", one) for one in checks]).passed is passed


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema": 2}, "no result of schema 1"),
        ({"machine": None}, "which machine"),
        ({"machine": {**MACHINE, "gpus": "H100"}}, "machine.gpus"),
        ({"checks": [{"verdict": 1}]}, "lacks a part"),
        ({"passed": True}, "its checks say otherwise"),
    ],
)
def test_what_is_no_result(change: dict[str, Any], why: str, tmp_path: Path) -> None:
    path = Result("truth", dict(MACHINE), [Check("x", False)]).write(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(BadResult, match=why):
        read(path)
    path.write_text("{")
    with pytest.raises(BadResult, match="no JSON"):
        read(path)


def test_committed_results_are_results() -> None:
    """And none of them is of a stand-in: those prove nothing about a GPU."""
    for path in FOLDER.glob("*.json"):
        assert not read(path).stand_in, path.name


def test_a_machine_is_described_without_names() -> None:
    found = machine.describe()
    assert set(found) == {"driver", "gpus", "cores", "kernel", "python", "packages", "date"}
    assert "numpy" not in found["packages"]
    assert machine.no_gpu("libno-such-cuda.so").startswith("This machine has no NVIDIA driver")


def test_promises_about_overhead() -> None:
    found = {
        "off": Ratio(1.0, 0.995, 1.004),
        "idle": Ratio(1.0, 0.998, 1.002),
        "after": Ratio(1.03, 1.02, 1.04),
        "armed": Ratio(1.2, 1.19, 1.21),
        "profiler": Ratio(1.5, 1.4, 1.6),
    }
    said = {check.name: check.passed for check in overhead.checks("launch_bound", found)}
    assert said == {
        "launch_bound: noise": True,
        "launch_bound: idle": True,
        "launch_bound: after": False,
        "launch_bound: armed, half of what torch.profiler takes": True,
    }
    bound = overhead.checks("gpu_bound", {**found, "armed": Ratio(1.02, 1.0, 1.04)})
    assert bound[-1].passed is None  # the interval says neither


@pytest.mark.parametrize(
    ("case", "outcome", "passed"),
    [
        ("late_attach", {"kernels": 5, "why": ""}, True),
        ("late_attach", {"kernels": 0, "why": "another profiler holds CUPTI"}, False),
        ("profiler_first", {"kernels": 0, "why": "another profiler holds CUPTI", "their_kernels": 9}, True),
        ("profiler_first", {"kernels": 0, "why": "", "their_kernels": 9}, False),  # silently nothing
        ("armed_first", {"kernels": 9, "why": "", "their_kernels": 0}, False),  # we have silenced them
        ("armed_first", {"kernels": 0, "why": "it has begun", "their_kernels": 9, "later_kernels": 9}, True),
        ("armed_first", {"kernels": 0, "why": "it has begun", "their_kernels": 9, "later_kernels": 0}, False),
        ("second_subscriber", {"kernels": 9, "error": 39}, True),
        ("second_subscriber", {"kernels": 0, "error": 39}, False),
        ("after_profiler", {"crashed": "SIGSEGV"}, False),
    ],
)
def test_outcomes_beside_others(case: str, outcome: dict[str, Any], passed: bool) -> None:
    assert judge(case, outcome).passed is passed
