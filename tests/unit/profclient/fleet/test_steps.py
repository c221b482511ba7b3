"""Which step all ranks can meet, and which were recorded by all."""

from __future__ import annotations

from typing import Any

import pytest
from profclient.fleet.steps import AROUND, AT_LEAST_NS, Common, StepProgress, common, meet, named
from profproto.v1 import capture_pb2 as pb

MS = 1_000_000
MOST = (1 << 63) - 1  # that a message holds


def pace(begun: int, step_ms: int, who: str = "rank 0", running_ms: int = 0) -> StepProgress:
    return StepProgress(who, 0, pb.ProgramSteps(begun=begun, running_ns=running_ms * MS, step_ns=step_ms * MS))


def test_no_rank_can_have_begun_the_step_by_then_and_the_last_one_is_waited_for():
    meeting = meet([pace(100, 10), pace(103, 10, "rank 1", 5)], 1000 * MS)
    assert meeting.step == 103 + 125 + 1  # a quarter more than fit
    assert meeting.last_ns == (meeting.step - 100 + 1) * 10 * MS


def test_steps_that_are_longer_than_the_lead_are_met_by_the_next_but_one():
    assert meet([pace(7, 5000), pace(7, 5000, running_ms=4900)], 1000 * MS).step == 9


@pytest.mark.parametrize(
    ("paces", "why"),
    [
        ([pace(9000, 10), pace(10, 10, "rank 1")], "rank 1 is 90 s behind the others"),
        ([pace(5000, 1), pace(5000, 300, "rank 1")], "rank 1 is "),
        ([pace(5, 10), pace(0, 0, "rank 1")], "rank 1 does not number its steps"),
        ([pace(5, 10), pace(1, 0, "rank 1")], "nobody knows yet how long the steps of rank 1 take"),
        ([pace(5, 10), StepProgress("rank 1", 0, can=False)], "rank 1 cannot begin at a step"),
        ([], "there are no processes"),
        ([pace(MOST, 10)], "rank 0 numbers its steps as no program does"),
        ([pace(5, 10), pace(-5, 10, "rank 1")], "rank 1 numbers its steps as no program does"),
        (
            [StepProgress("rank 0", 0, pb.ProgramSteps(begun=5, running_ns=-1, step_ns=1))],
            "rank 0 numbers its steps as",
        ),
    ],
)
def test_no_step_is_chosen_where_counts_say_nothing(paces, why):
    meeting = meet(paces, 1000 * MS)
    assert meeting.step is None
    assert meeting.why.startswith(why)


@pytest.mark.parametrize(
    ("paces", "why"),
    [
        ([pace(5, 10), pace(0, 0, "rank 1")], "rank 1 does not number its steps (profclient.step()), and waits until"),
        ([pace(5, 10), pace(101, 10, "rank 1")], "rank 1 has begun 101 steps already"),
        ([pace(5, 10), pace(100, 10, "rank 1")], ""),
        ([], ""),
    ],
)
def test_a_step_that_the_user_names_may_not_come(paces, why):
    meeting = named(100, paces)
    assert meeting.step == 100
    assert meeting.why.startswith(why)
    assert bool(meeting.why) == bool(why)


def captured(*recorded: pb.RecordedSteps | None, **options: Any) -> list[pb.Capture]:
    """One capture for each rank: all recorded from 0 to 2 s, but rank 1 from 0.1 s on."""
    return [
        pb.Capture(
            options=pb.Options(**options),
            targets=[
                pb.TargetStatus(
                    rank=rank, trace="t", state=pb.STATE_STORED, start_ns=100 * MS * rank, end_ns=2000 * MS, steps=steps
                )
            ],
        )
        for rank, steps in enumerate(recorded)
    ]


AT_STEP = {"iterations": 5, "begin_step": 100}
BY_CLOCK = {"iterations": 5 + AROUND, "at_least_ns": AT_LEAST_NS}
WHOLE = pb.RecordedSteps(first=99, count=7)


@pytest.mark.parametrize(
    ("recorded", "expected", "missed"),
    [
        ([WHOLE, WHOLE], Common(5, 100, 5), False),
        ([WHOLE, pb.RecordedSteps(first=102, count=2)], Common(2, 102, 5), True),
        ([WHOLE, pb.RecordedSteps(first=110, count=7)], Common(5, 100, 5, ("rank 1",)), True),
        ([WHOLE, pb.RecordedSteps(count=7)], Common(5, 100, 5, ("rank 1",)), True),
    ],
)
def test_common_steps_by_number(recorded, expected, missed):
    found = common(captured(*recorded, **AT_STEP))
    assert found is not None
    assert (found, found.missed) == (expected, missed)


@pytest.mark.parametrize(
    ("recorded", "expected", "missed"),
    [
        ([pb.RecordedSteps(count=7, step_ns=250 * MS)] * 2, Common(6, None, 5), False),
        ([pb.RecordedSteps(count=7, step_ns=400 * MS)] * 2, Common(3, None, 5), True),
        ([pb.RecordedSteps(count=2000, step_ns=MS), None], Common(1899, None, 5, ("rank 1",)), True),
    ],
)
def test_common_steps_by_clock_are_counted_from_below(recorded, expected, missed):
    found = common(captured(*recorded, **BY_CLOCK))
    assert found is not None
    assert (found, found.missed) == (expected, missed)


def ended(capture: pb.Capture, reason: Any = pb.REASON_UNSPECIFIED) -> pb.Capture:
    """The same, where nothing was recorded."""
    (target,) = capture.targets
    target.ClearField("trace")
    target.state, target.reason = pb.STATE_FAILED, reason
    return capture


@pytest.mark.parametrize("options", [AT_STEP, BY_CLOCK], ids=["by step", "by clock"])
def test_a_rank_that_recorded_nothing_has_none_of_the_steps(options):
    steps = pb.RecordedSteps(first=99, count=7, step_ns=100 * MS)
    first, second = captured(steps, steps, **options)
    found = common([first, ended(second)])
    assert found is not None
    assert (found.count >= 5, found.unpaired, found.missed) == (True, ("rank 1",), True)
    # Of a host that is lost nobody knows more than the ranks.
    found = common([first], ranks=[3, 0])
    assert found is not None
    assert found.unpaired == ("rank 3",)


def test_a_rank_that_one_host_recorded_is_not_missing_on_another():
    first, second = captured(WHOLE, WHOLE, **AT_STEP)
    (other,) = captured(WHOLE, **AT_STEP)
    assert common([first, second, ended(other)]) == Common(5, 100, 5)


@pytest.mark.parametrize("options", [AT_STEP, BY_CLOCK], ids=["by step", "by clock"])
@pytest.mark.parametrize("there", ["n1", "n2"])
def test_processes_of_one_number_hide_no_other(options, there):
    """GIVEN a rank without steps and another process of its number: a child of it, or one that lies on another host."""
    steps = pb.RecordedSteps(first=99, count=7, step_ns=100 * MS)
    captures = captured(steps, None, steps, **options)
    for capture, host in zip(captures, ("n0", "n1", there), strict=True):
        capture.targets[0].host = host
    captures[2].targets[0].rank = 1
    for order in (captures, captures[::-1]):
        found = common(order)
        assert found is not None
        assert found.unpaired == (() if there == "n1" else ("rank 1",))


def test_it_is_no_question_of_steps():
    assert common(captured(WHOLE, WHOLE, duration_ns=1)) is None
    assert common(captured(WHOLE, **AT_STEP)) is None  # of one process
    first, launcher = captured(WHOLE, WHOLE, **AT_STEP)
    assert common([first, ended(launcher, pb.REASON_LAUNCHER)]) is None
