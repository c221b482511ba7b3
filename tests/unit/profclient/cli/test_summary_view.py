"""The summary of a trace, for people."""

from __future__ import annotations

from typing import Any

import pytest
from profclient.cli.summary_view import print_summary, resident_text

TRACE = {"id": "t1", "title": "train.py", "events": 3, "created_ns": 0, "source": "sdk", "host": "n1", "pid": 7}


def shown(capsys: pytest.CaptureFixture[str], **summary: Any) -> dict[str, str]:
    print_summary({"trace": TRACE, "next": "profctl top t1", **summary})
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    return {line.split("  ")[0]: line.partition("  ")[2].strip() for line in lines}


def test_long_lines_are_wrapped_between_words_under_their_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    detail = "3,212 events, each counted at its highest measured cost, Optimizer.step_and_much_more_of_a_name"
    rows = [{"name": "n" * 200, "count": 1, "self_cpu_time_total_ns": 5, "self_device_time_total_ns": 0}]
    print_summary({"trace": TRACE, "cost": {"how": "estimated", "seconds": 0.0046, "detail": detail}, "top": rows})
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    first = next(number for number, line in enumerate(lines) if line.startswith("  cost"))
    assert lines[first] == "  cost          4.60 ms (estimated: 3,212 events, each"
    assert lines[first + 1].startswith(" " * 16 + "counted at")
    told = " ".join(line.strip() for line in lines[first : first + 4])
    assert "Optimizer.step_and_much_more_of_a_name)" in told


def test_lines_stay_whole_in_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert shown(capsys, warnings=["word " * 99 + "end"])["warning"].endswith("end")


@pytest.mark.parametrize(("error", "said"), [(0, "0 ns"), (1250, "1.25 us")])
def test_how_exact_the_clock_is(capsys: pytest.CaptureFixture[str], error: int, said: str) -> None:
    assert shown(capsys, clock_error_ns=error)["clock"] == f"times are within {said} of the host's"


def test_nothing_is_said_of_a_clock_that_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert "clock" not in shown(capsys, clock_error_ns=None)
    assert "clock" not in shown(capsys)


def test_slow_steps_are_named_as_step_takes_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    told = {"n": 14, "above_ns": 105_000_000, "numbers": [3, *range(200, 211)]}
    steps = {"n": 300, "p50_ns": 10, "p95_ns": 10, "max_ns": 10, "from": "ProfilerStep", "message": None}
    line = shown(capsys, steps={**steps, "outliers": told})["slow steps"]
    assert line == "14 of more than 105.0 ms: 3, 200..210 and 2 more  (profctl steps, top --step N)"
    for outliers in (None, {"n": 0, "above_ns": 5, "numbers": []}):
        assert "slow steps" not in shown(capsys, steps={**steps, "outliers": outliers})
    assert "slow steps" not in shown(capsys, steps=steps)


@pytest.mark.parametrize(
    ("per_step", "line"),
    [
        (
            1.0,
            "300 values of tensors (.item(), float(), if): 1 a step, 5.00 ms in all",
        ),
        (0.1, None),  # a line of a log
        (None, None),
    ],
)
def test_values_that_are_read_in_each_step_are_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, per_step: float | None, line: str | None
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    reads = {"calls": 300, "per_step": per_step, "total_ns": 5_000_000}
    assert shown(capsys, host_reads=reads).get("host reads") == line
    assert "host reads" not in shown(capsys, host_reads=None)
    on_device = shown(capsys, host_reads=reads, trace={**TRACE, "gpu_events": 9}).get("host reads")
    assert on_device == (line and f"{line}; each waits for its device")


RESIDENT = {"end_bytes": 1_200_000_000, "lasted_ns": 3_000_000_000, "grown_per_step_bytes": 90_000}


@pytest.mark.parametrize(
    ("resident", "said"),
    [
        (
            {**RESIDENT, "grown_bytes": 36_000_000},
            "memory 1.2 GB, grew 36.0 MB (12.0 MB/s, 90.0 kB a step) in the window",
        ),
        (
            {**RESIDENT, "grown_bytes": -3_000_000, "grown_per_step_bytes": None},
            "memory 1.2 GB, shrank 3.0 MB (1.0 MB/s) in the window",
        ),
        ({**RESIDENT, "grown_bytes": None, "lasted_ns": 0}, "memory 1.2 GB"),
        (None, ""),
    ],
    ids=["grew", "shrank", "once", "unknown"],
)
def test_memory_of_the_process(resident: dict[str, Any] | None, said: str) -> None:
    assert resident_text({"resident": resident}) == said
