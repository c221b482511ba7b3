"""What a request would mean, and why a process cannot be traced: said before anything is touched."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from profd.capture.choice import not_honoured
from profd.model.capture import Options, Reason
from profd.sources.kineto.offering import offer
from profd.sources.kineto.planning import DECLARATION, SECOND, EarlierTrace, cost, plan
from profd.sources.kineto.registry import KinetoPeer, Registered
from profd.targets.process import Process, ProcessId

TEN = Options(duration_ns=10 * SECOND)
ME = os.geteuid()  # whose files an unprivileged daemon may take
PROCESS = Process(ProcessId(4_000_000, 7), 1, ME, 0, "me", "python train.py", framework="torch", python=True)
KNOWN = Registered(KinetoPeer(PROCESS.id, 0, 0, "/d/dynoconfigclient1", "directory"), 0, 100 * SECOND)
NOW = 101 * SECOND


def said(options: Options) -> list[str]:
    """The words of options that are not honoured."""
    texts = not_honoured(DECLARATION, options, plan(PROCESS, options, None, None, 0.0))
    return [text.partition(":")[0] for text in texts]


def test_latency_is_a_poll_and_the_lead() -> None:
    assert plan(PROCESS, TEN, None, None, 0.0).latency_ns == 7 * SECOND
    assert plan(PROCESS, TEN, SECOND, None, 0.0).latency_ns == 3 * SECOND
    assert plan(PROCESS, Options(iterations=3), SECOND, None, 0.0).latency_ns == SECOND


def test_common_start_is_waited_for() -> None:
    far = replace(TEN, start_at_ns=1000 * SECOND)
    near, later = plan(PROCESS, TEN, None, None, 100.0), plan(PROCESS, far, None, None, 100.0)
    assert later.latency_ns == 900 * SECOND
    assert later.deadline_ns == near.deadline_ns + 900 * SECOND
    assert plan(PROCESS, far, None, None, 2000.0).latency_ns == near.latency_ns


def test_deadline_grows_with_the_window() -> None:
    short, long = (plan(PROCESS, Options(duration_ns=n * SECOND), None, None, 0.0) for n in (1, 100))
    assert long.deadline_ns - short.deadline_ns >= 3 * 99 * SECOND


def test_not_honoured() -> None:
    asked = Options(duration_ns=1, memory=True, modules=True, flops=True, native=True, sample_hz=10.0)
    assert said(asked) == ["memory", "modules", "samples", "native"]
    assert said(replace(TEN, modules=True, c_calls=True, stacks=True)) == []
    assert said(replace(TEN, c_calls=True, torch="observer", port=9999)) == ["c_calls", "torch", "port"]
    assert said(replace(TEN, torch="profiler")) == said(replace(TEN, torch="auto")) == []
    assert said(replace(TEN, start_at_ns=5)) == []
    assert said(Options(iterations=3, start_at_ns=5)) == ["start_in"]


def test_events_are_estimated_from_an_earlier_trace() -> None:
    seen = EarlierTrace(events=100 / SECOND, stacks=False)
    known = plan(PROCESS, TEN, None, seen, 0.0)
    assert (known.events, known.trace_bytes, known.memory_bytes) == (1000, 260_000, 1_600_000)
    assert known.cost_ns == 600_000
    assert plan(PROCESS, replace(TEN, stacks=True), None, seen, 0.0).events == 2050
    assert plan(PROCESS, replace(TEN, shapes=True), None, seen, 0.0).trace_bytes == 380_000
    for unknown in (plan(PROCESS, TEN, None, None, 0.0), plan(PROCESS, Options(iterations=3), None, seen, 0.0)):
        assert (unknown.events, unknown.trace_bytes, unknown.memory_bytes, unknown.cost_ns) == (None, None, None, None)


def test_cost_is_estimated_from_events() -> None:
    found = cost(TEN, 1_000_000, 10 * SECOND)
    assert (found.how, found.seconds) == ("estimated", pytest.approx(0.6))
    assert "6.0 % of the window" in found.detail
    more = cost(replace(TEN, shapes=True), 1_000_000, None)
    assert more.seconds == pytest.approx(0.95)
    assert "%" not in more.detail


@pytest.mark.parametrize(("left", "serves"), [(10, False), (26, False), (28, True), (-5, False)])
def test_job_about_to_end(left: int, serves: bool) -> None:
    process = replace(PROCESS, environ={"SLURM_JOB_END_TIME": str(1000 + left)})
    found = plan(process, TEN, None, None, 1000.0)
    assert found.serves is serves
    if not serves:
        assert found.refusal_code is Reason.TARGET_ENDING
        assert not plan(process, replace(TEN, force=True), None, None, 1000.0).serves  # every use of it is forced


@pytest.mark.parametrize("end", ["", "soon", "-1", "9" * 40, "\uff11"])
def test_end_times_that_say_nothing(end: str) -> None:
    assert plan(replace(PROCESS, environ={"SLURM_JOB_END_TIME": end}), TEN, None, None, 1000.0).serves


def ask(process: Process = PROCESS, known: Registered | None = KNOWN, **changed):
    usual = {
        "capture": "",
        "idle_after_ns": 0,
        "now_ns": NOW,
        "abstract": True,
        "directory": Path("/run/profd/kineto"),
        "off": "",
        "out_of_reach": "",
        "expected": False,
    }
    return offer(process, known, **{**usual, **changed})


def enabled(**more: str) -> Process:
    return replace(PROCESS, environ={"KINETO_USE_DAEMON": "1", **more})


def test_registered_process_is_offered() -> None:
    assert ask().can


def test_who_cannot_register_is_told_why() -> None:
    process = enabled(KINETO_IPC_SOCKET_DIR="/run/profd/kineto")
    said = ask(process, None, out_of_reach="somebody has kept its lock")
    assert (said.can, "somebody has kept its lock" in said.reason) == (False, True)
    # By an abstract name it could
    assert "kept" not in ask(enabled(), None, out_of_reach="somebody has kept its lock").reason


def test_busy_by_us_and_by_others() -> None:
    ours = ask(capture="c9")
    assert (ours.can, ours.busy, ours.why_code) == (False, True, Reason.CAPTURE_RUNNING)
    assert "c9" in ours.reason
    tracing = replace(KNOWN, takes_config=False)
    theirs = ask(known=tracing)
    assert (theirs.can, theirs.busy, theirs.why_code) == (False, True, Reason.OTHER_PROFILER)
    # A poll from before our own capture ended speaks of that capture.
    assert ask(known=tracing, idle_after_ns=KNOWN.last_poll_ns).can


def test_silent_and_stopped() -> None:
    assert ask(now_ns=KNOWN.last_poll_ns + 60 * SECOND).why_code is Reason.TARGET_SILENT
    assert "CONT" in ask(replace(PROCESS, stopped=True)).fix


@pytest.mark.parametrize(
    ("process", "changed", "reason", "fix"),
    [
        (PROCESS, {}, "without KINETO_USE_DAEMON", "KINETO_USE_DAEMON=1"),
        (replace(PROCESS, framework="python"), {}, "not a PyTorch process", ""),
        (replace(enabled(), framework="python"), {}, "not imported yet", "wait"),
        (enabled(), {}, "has not asked", "wait"),
        (enabled(), {"abstract": False, "off": "held by pid 5"}, "held by pid 5", "KINETO_IPC_SOCKET_DIR=/run"),
        (enabled(KINETO_IPC_SOCKET_DIR="/x"), {}, "the daemon listens in /run", "spelled exactly"),
        (enabled(KINETO_IPC_SOCKET_DIR="/x"), {"directory": None}, "directory mode is off", "start profd"),
        (enabled(KINETO_IPC_SOCKET_DIR="/run/profd/kineto"), {}, "has not asked", "wait"),
        (enabled(), {"abstract": False, "directory": None, "off": "held by pid 5"}, "kineto is off", "doctor"),
    ],
)
def test_why_not(process: Process, changed: dict, reason: str, fix: str) -> None:
    found = ask(process, None, **changed)
    assert not found.can
    assert reason in found.reason
    assert fix in found.fix


def test_a_process_that_may_still_register_is_waited_for() -> None:
    found = ask(enabled(), None, expected=True)
    assert found.can
    assert "waits" in found.reason
    assert ask(replace(enabled(), framework="python", python=True), None, expected=True).can  # torch is on its way
    for never in (PROCESS, replace(enabled(), framework="", python=False), enabled(KINETO_IPC_SOCKET_DIR="/x")):
        assert not ask(never, None, expected=True).can
    assert not ask(replace(enabled(), stopped=True), None, expected=True).can
