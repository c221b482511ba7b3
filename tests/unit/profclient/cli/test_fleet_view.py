"""What people read of a capture of many hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from profclient.cli.fleet_view import FleetProgress, print_outcome
from profclient.fleet.machine import Began, Fleet, HostState, Stand
from profclient.fleet.outcome import Outcome
from profclient.fleet.steps import StepTime
from profproto.v1 import capture_pb2 as pb

ID = "f0123456789ab"
SECOND = 1_000_000_000


def rank(number: int, state: Any = pb.STATE_STORED, **options: Any) -> HostState:
    target = pb.TargetStatus(pid=number, rank=number, state=state, start_ns=0, end_ns=SECOND)
    if state == pb.STATE_STORED:
        target.trace, target.steps.count, target.steps.step_ns = f"t{number}", 8, SECOND // 10
    return HostState(Stand.OVER, capture=pb.Capture(id=f"c{number}", options=pb.Options(**options), targets=[target]))


def told(capsys: pytest.CaptureFixture[str], *hosts: HostState, collected: str = "") -> str:
    print_outcome(Outcome(ID, {f"n{at}": host for at, host in enumerate(hosts)}), collected)
    return " ".join(capsys.readouterr().out.split())


def test_a_capture_that_is_over_is_not_said_to_record(capsys: pytest.CaptureFixture[str]) -> None:
    fleet = Fleet.resumed(["n0", "n1"])
    with FleetProgress(ID, quiet=False) as progress:
        fleet.begin()
        progress.show(fleet)
        for number, host in enumerate(fleet.hosts):
            fleet.handle(Began(host, rank(number).capture, live=False))
            progress.show(fleet)
    assert capsys.readouterr().err.splitlines() == [f"capture {ID}  hosts: 2 asked"]


def test_a_rank_without_steps_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    asked: dict[str, Any] = {"iterations": 7, "at_least_ns": 1}
    said = told(capsys, rank(0, **asked), rank(1, pb.STATE_FAILED, **asked))
    assert "steps missed: rank 1 has none; in the time that the others recorded each had at least 8 whole steps" in said
    assert "were asked for" not in said
    said = told(capsys, rank(0, **asked), rank(1, **asked))
    assert "steps in the time that all recorded each had at least 8 whole steps" in said


def test_a_lost_host_records_no_more_as_far_as_anybody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    gone = rank(1, pb.STATE_RECORDING)
    gone.stand, gone.why, gone.kind = Stand.LOST, "the step has ended", "unreachable"
    said = told(capsys, rank(0), gone)
    assert f"capture {ID}: partial" in said
    assert "processes 1 stored missing n1 is lost: the step has ended" in said
    assert f"next: profctl wait {ID} (a lost host keeps what it recorded" in said


def test_the_pace_of_ranks_that_are_not_recorded_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    host = rank(0)
    host.chosen = [0]
    times = [StepTime("n0", 0, SECOND, True), StepTime("n0", 1, SECOND, False), StepTime("n1", 2, 2 * SECOND, False)]
    outcome = Outcome(ID, {"n0": host}, sampled_of=3, step_times=times)
    print_outcome(outcome)
    said = " ".join(capsys.readouterr().out.replace("\N{NO-BREAK SPACE}", " ").split())
    pace = "steps of 3 ranks took 1.00 s (median), at most 2.00 s: rank 2 of n1, which was not recorded"
    assert pace in said, said
    told = outcome.to_json()["sample"]["step_times"]
    assert told[2] == {"host": "n1", "rank": 2, "step_ns": 2 * SECOND, "recorded": False}


def test_who_may_record_later_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    held = HostState(Stand.OUT, "pid 7 is held by capture c2 of root; wait for it", "busy")
    assert "busy n0, n2: the same command may record more later" in told(capsys, rank(0, pb.STATE_BUSY), rank(1), held)
    assert "may record more" not in told(capsys, rank(0), HostState(Stand.OUT, "no", "denied"))


def test_what_helps_next_is_a_question_where_the_traces_are_here(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert f"next: profctl collect {ID} --to DIR" in told(capsys, rank(0), rank(1))
    said = told(capsys, rank(0), rank(1), collected=str(tmp_path))
    assert f"next: profctl ranks {ID} (its traces are in {tmp_path})" in said
    assert "collect" not in said
    assert f"next: profctl top {ID} --by host" in told(capsys, rank(0), collected=str(tmp_path))
    assert "next:" not in told(capsys, rank(0, pb.STATE_FAILED), collected=str(tmp_path))
