"""What the source offers and plans, without touching a process."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from profd.capture.choice import not_honoured
from profd.limits import CAPTURE_WINDOW_MAX_NS
from profd.model.capture import Options, Reason
from profd.sources.pyspy.permission import Rights
from profd.sources.pyspy.source import DECLARATION, PySpySource
from profd.targets.process import Process, ProcessId

SECOND = 1_000_000_000
PROCESS = Process(ProcessId(12, 5), 1, 1000, 1000, "alice", "python train.py", python=True)
ROOT = Rights(0, True, 0)


def source() -> PySpySource:
    return PySpySource(Path("/opt/py-spy"), ROOT)


def test_offer() -> None:
    assert source().offer(PROCESS).can


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"python": False}, Reason.NO_SOURCE, "no Python interpreter"),
        ({"zombie": True}, Reason.TARGET_ENDED, "has ended"),
        ({"stopped": True}, Reason.NO_SOURCE, "kill -CONT 12"),
    ],
)
def test_refused_processes(change: dict[str, Any], code: Reason, said: str) -> None:
    offer = source().offer(dataclasses.replace(PROCESS, **change))
    assert not offer.can
    assert offer.why_code is code
    assert said in f"{offer.reason} {offer.fix}"


def test_refused_without_permission() -> None:
    offer = PySpySource(Path("/opt/py-spy"), Rights(1001, False, 0)).offer(PROCESS)
    assert not offer.can
    assert offer.why_code is Reason.NOT_PERMITTED


def test_without_py_spy() -> None:
    offer = PySpySource().offer(PROCESS)
    assert not offer.can
    assert "pip install" in offer.fix
    assert PySpySource().status()[0] is False


def test_plain_request() -> None:
    plan = source().plan(PROCESS, Options(duration_ns=2 * SECOND, stacks=True))
    assert plan.serves
    assert not_honoured(DECLARATION, Options(duration_ns=2 * SECOND, stacks=True), plan) == ()
    assert plan.memory_bytes == 0
    assert plan.deadline_ns > 2 * SECOND
    assert "not paused" in plan.risks[0]


def test_native_frames_pause() -> None:
    assert "is paused" in source().plan(PROCESS, Options(duration_ns=SECOND, native=True)).risks[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (Options(duration_ns=SECOND, shapes=True), ["shapes"]),
        (Options(duration_ns=SECOND, memory=True, modules=True, flops=True), ["memory", "modules", "flops"]),
        (Options(duration_ns=SECOND, c_calls=True, torch="observer"), ["c_calls", "torch"]),
        (Options(duration_ns=SECOND, port=9999, collect_timeout_ns=SECOND), ["port", "collect_timeout"]),
        (Options(duration_ns=SECOND, torch="auto"), []),
        (Options(duration_ns=SECOND, sample_hz=5000), ["samples"]),
        (Options(duration_ns=SECOND, sample_hz=0.5), ["samples"]),
        (Options(duration_ns=SECOND, sample_hz=250), []),
    ],
)
def test_what_is_not_honoured_is_said(options: Options, words: list[str]) -> None:
    plan = source().plan(PROCESS, options)
    assert plan.serves
    assert [said.partition(":")[0] for said in not_honoured(DECLARATION, options, plan)] == words


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (Options(duration_ns=SECOND, sample_hz=0), Reason.NOT_HONOURED),
        (Options(duration_ns=SECOND, sample_hz=float("nan")), Reason.NOT_HONOURED),
        (Options(duration_ns=CAPTURE_WINDOW_MAX_NS, sample_hz=1000), Reason.OVER_LIMIT),
    ],
)
def test_requests_it_does_not_serve(options: Options, code: Reason) -> None:
    plan = source().plan(PROCESS, options)
    assert not plan.serves
    assert plan.refusal_code is code
    assert plan.refusal


def test_force_goes_beyond_the_limit_and_open_ended_stays_within() -> None:
    assert source().plan(PROCESS, Options(duration_ns=CAPTURE_WINDOW_MAX_NS, sample_hz=1000, force=True)).serves
    plan = source().plan(PROCESS, Options(sample_hz=1000))
    assert plan.serves
    assert plan.deadline_ns < CAPTURE_WINDOW_MAX_NS
