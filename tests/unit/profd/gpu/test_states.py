"""What a collector says of itself, as the daemon takes it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.attached.sdk.outcome import explain_gpu
from profd.gpu.states import GpuReport, GpuState, report_from_untrusted, sentence
from profd.model.capture import Reason, Recording, State

ROOT = Path(__file__).parents[4]


def test_codes_are_the_collectors() -> None:
    text = (ROOT / "native" / "gpu" / "state.cpp").read_text()
    codes = re.findall(r'case State::\w+: return "(\w+)";', text)
    assert sorted(codes) == sorted(state.value for state in GpuState)


def test_a_report() -> None:
    report = report_from_untrusted(
        {
            "events": "7",
            "gpu.state": "foreign_subscriber",
            "gpu.holder": "CUPTI for Nsight Systems",
            "gpu.clock": "fitted",
            "gpu.clock_error_ns": "1200",
            "gpu.clock_offset_ns": "-5",
            "gpu.made_up": "1",
        }
    )
    assert report.state is GpuState.FOREIGN_SUBSCRIBER
    assert report.state.held
    assert report.holder == "CUPTI for Nsight Systems"
    assert report.facts == {
        "state": "foreign_subscriber",
        "clock": "fitted",
        "clock_error_ns": 1200,
        "clock_offset_ns": -5,
    }
    assert (report.reason, report.clock_error_ns) == (Reason.OTHER_PROFILER, 1200)


def test_no_collector_has_spoken() -> None:
    assert report_from_untrusted({"events": "7"}) == GpuReport()
    assert GpuReport().reason is Reason.NONE


@given(st.dictionaries(st.sampled_from(["gpu.state", "gpu.clock", "gpu.records", "gpu.holder"]), st.text(max_size=300)))
def test_anything_is_a_report(fields: dict[str, str]) -> None:
    report = report_from_untrusted(fields)
    assert (report.state is None) == (not fields)
    assert set(report.facts) <= {"state", "clock", "records"}
    assert len(report.holder) <= 128


@pytest.mark.parametrize(
    ("state", "before", "after"),
    [
        (GpuState.FOREIGN_SUBSCRIBER, State.FAILED, (State.BUSY, Reason.OTHER_PROFILER)),
        (GpuState.NO_PRIVILEGE, State.FAILED, (State.REFUSED, Reason.NOT_PERMITTED)),
        (GpuState.NO_CUPTI, State.FAILED, (State.FAILED, Reason.SOURCE_FAILED)),
        (GpuState.GPU_LOST, State.DRAINING, (State.DRAINING, Reason.SOURCE_FAILED)),
        (GpuState.TAKEN_OVER, State.DRAINING, (State.DRAINING, Reason.OTHER_PROFILER)),
        (GpuState.NO_KERNELS, State.DRAINING, (State.DRAINING, Reason.NO_GPU_RECORDS)),
        (GpuState.NO_DRIVER, State.DRAINING, (State.DRAINING, Reason.NONE)),
        (GpuState.OK, State.DRAINING, (State.DRAINING, Reason.NONE)),
    ],
)
def test_what_it_means_for_a_capture(state: GpuState, before: State, after: tuple[State, Reason]) -> None:
    why = "no libcupti is to be found: install nvidia-cuda-cupti"
    reason = Reason.NO_FILE if before is State.FAILED else Reason.NONE
    recording = Recording(before, reason, not_honoured=["flops: none", f"cuda: {why}"])
    explain_gpu(recording, GpuReport(state))
    assert (recording.state, recording.reason) == after
    if recording.reason is not Reason.NONE:
        assert recording.message == why


def test_a_graver_reason_stays() -> None:
    recording = Recording(reason=Reason.TARGET_ENDED, message="the process ended")
    explain_gpu(recording, GpuReport(GpuState.GPU_LOST))
    assert (recording.reason, recording.message) == (Reason.TARGET_ENDED, "the process ended")


@pytest.mark.parametrize(("stood", "told"), [("99", []), ("1020", ["CUPTI waited 1020 ms"])])
def test_a_program_that_stood_behind_cupti_is_told(stood: str, told: list[str]) -> None:
    recording = Recording(State.STORED, Reason.NONE)
    explain_gpu(recording, report_from_untrusted({"gpu.state": "ok", "gpu.subscribe_ms": stood}))
    assert [warning[:20] for warning in recording.warnings] == told


def test_sentences_are_said_once() -> None:
    assert sentence(["cuda: a", "x", "cuda: b", "cuda: a"]) == "a; b"
