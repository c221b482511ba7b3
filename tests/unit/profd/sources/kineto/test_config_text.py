"""What libkineto is sent: every line valid, nothing dangerous."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.model.capture import Options
from profd.sources.kineto.config_text import KinetoConfig, from_options

TOKEN = "ab" * 16


def values(config: KinetoConfig) -> dict[str, str]:
    return dict(line.split("=") for line in config.text().splitlines())


def test_duration() -> None:
    assert values(from_options(Options(duration_ns=1_500_000_001), "/tmp/x.json", TOKEN)) == {
        "ACTIVITIES_LOG_FILE": "/tmp/x.json",
        "REQUEST_TRACE_ID": TOKEN,
        "ACTIVITIES_WARMUP_PERIOD_SECS": "0",
        "ACTIVITIES_DURATION_MSECS": "1501",
    }


def test_iterations_need_a_round_up_and_a_fallback() -> None:
    found = values(from_options(Options(iterations=5), "/tmp/x.json", TOKEN, start_time_ms=9))
    assert found["ACTIVITIES_ITERATIONS"] == "5"
    assert found["PROFILE_START_ITERATION_ROUNDUP"] == "1"
    assert found["ACTIVITIES_DURATION_MSECS"] == "500"
    assert "PROFILE_START_TIME" not in found


def test_common_start() -> None:
    found = values(from_options(Options(duration_ns=10**9), "/tmp/x.json", TOKEN, start_time_ms=1790857026001))
    assert found["PROFILE_START_TIME"] == "1790857026001"


def test_flops_record_shapes_and_modules_need_stacks() -> None:
    found = values(from_options(Options(duration_ns=1, flops=True, modules=True, memory=True), "/tmp/x.json", TOKEN))
    assert found["PROFILE_REPORT_INPUT_SHAPES"] == "true"
    assert "PROFILE_WITH_MODULES" not in found
    assert not any("MEMORY" in key or "FLOPS" in key for key in found)
    found = values(from_options(Options(duration_ns=1, stacks=True, modules=True), "/tmp/x.json", TOKEN))
    assert (found["PROFILE_WITH_STACK"], found["PROFILE_WITH_MODULES"]) == ("true", "true")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "x.json",
        "/x",
        "/a=b/x.json",
        "/a/../x.json",
        "/a\nPROFILE_MEMORY/x.json",
        "/a#b/x.json",
        "/ü/x.json",
        "//x.json",
        "/x.json\n",
    ],
)
def test_paths_that_would_break_a_line(path: str) -> None:
    with pytest.raises(ValueError, match="output path"):
        KinetoConfig(path, TOKEN, 500)


@pytest.mark.parametrize(
    "wrong",
    [
        {"trace_id": "x"},
        {"duration_ms": 0},
        {"duration_ms": 10**9},
        {"iterations": -1},
        {"iterations": 10**9},
        {"start_time_ms": -1},
    ],
)
def test_values_out_of_range(wrong: dict) -> None:
    with pytest.raises(ValueError, match=r"out of range|not a trace id"):
        KinetoConfig(**{"output": "/tmp/x.json", "trace_id": TOKEN, "duration_ms": 500, **wrong})


@given(st.text(max_size=40), st.builds(Options, duration_ns=st.integers(0, 10**12), iterations=st.integers(0, 10**5)))
def test_every_line_has_one_equals_sign(folder: str, options: Options) -> None:
    with contextlib.suppress(ValueError):
        lines = from_options(options, f"/{folder}/x.json", TOKEN).text().splitlines()
        assert all(line.count("=") == 1 and line.isascii() and "#" not in line for line in lines)
        assert not any(line.startswith("PROFILE_MEMORY") for line in lines)
