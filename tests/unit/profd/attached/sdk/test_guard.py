"""--max-overhead: what is left out, and when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from profd.attached.agents.protocol import Hello, Status
from profd.attached.sdk.guard import ABORT, OverheadGuard, kinds
from profd.model.capture import Options


def test_what_is_cheap_enough_is_left_alone() -> None:
    guard = OverheadGuard(0.02, ("stacks",))
    assert [guard.judge(Status(seconds=0.019 * n), n) for n in range(1, 10)] == [""] * 9
    assert guard.sentences() == []


def test_what_has_most_events_goes_first_and_gets_a_second_to_show() -> None:
    guard = OverheadGuard(0.02, ("c_calls", "stacks"))
    assert guard.judge(Status(seconds=0.10), 1.0) == "c_calls"
    assert guard.judge(Status(seconds=0.15), 2.0) == ""  # part of this second was before
    assert guard.judge(Status(seconds=0.16), 3.0) == ""
    assert guard.judge(Status(seconds=0.20), 4.0) == "stacks"
    assert guard.judge(Status(seconds=0.24), 5.0) == ""
    assert guard.judge(Status(seconds=0.30), 6.0) == ABORT
    first, second = guard.sentences()
    assert first == ("c_calls: left out from 1.0 s on, because recording took about 10.0 % and --max-overhead is 2 %")
    assert second.startswith("stacks: left out from 4.0 s on")


def test_statuses_that_come_late_and_together_are_judged_by_their_own_times() -> None:
    """GIVEN 1.9 % in each second WHEN a busy host's daemon hears of two seconds at once THEN it is 1.9 %."""
    guard = OverheadGuard(0.02, ("stacks",))
    assert guard.judge(Status(seconds=0.019, lasted_s=1.0), 1.98) == ""
    assert guard.judge(Status(seconds=0.038, lasted_s=2.0), 2.0) == ""
    # AND what is too much is, however late it is heard of, from the moment that it was told of
    assert guard.judge(Status(seconds=0.078, lasted_s=3.0), 30.0) == "stacks"
    assert guard.sentences()[0].startswith("stacks: left out from 3.0 s on, because recording took about 4.0 %")


def test_what_was_told_before_it_was_left_out_says_nothing_of_the_rest() -> None:
    """GIVEN statuses that were on the way WHEN a kind is dropped THEN none ends it until the drop was obeyed."""
    guard = OverheadGuard(0.02, ("stacks",))
    assert guard.judge(Status(seconds=0.1, lasted_s=1.0, limits=0), 1.0) == "stacks"
    on_the_way = [Status(seconds=0.1 * n, lasted_s=n, limits=0) for n in (2, 3, 4)]
    assert [guard.judge(status, 4.0) for status in on_the_way] == [""] * 3
    assert guard.judge(Status(seconds=0.45, lasted_s=5.0, limits=1), 5.0) == ""  # a part of it was before
    assert guard.judge(Status(seconds=0.46, lasted_s=6.0, limits=1), 6.0) == ""
    assert guard.judge(Status(seconds=0.56, lasted_s=7.0, limits=1), 7.0) == ABORT


def test_only_what_was_spent_since_counts() -> None:
    guard = OverheadGuard(0.02, ("stacks",))
    assert guard.judge(Status(seconds=0.5), 1.0) == "stacks"
    for second in range(2, 30):
        assert guard.judge(Status(seconds=0.5 + 0.001 * second), second) == ""


def test_steps_must_be_slow_three_times_running() -> None:
    def slow() -> Status:
        return Status(step_ns=110, step_ns_before=100)

    guard = OverheadGuard(0.05, ("stacks",))
    assert [guard.judge(slow(), 1), guard.judge(slow(), 2)] == ["", ""]
    assert guard.judge(Status(step_ns=101, step_ns_before=100), 3) == ""
    assert [guard.judge(slow(), n) for n in (4, 5, 6)] == ["", "", "stacks"]


def test_slow_steps_must_last_however_often_they_are_told() -> None:
    guard = OverheadGuard(0.05, ("stacks",))
    said = [guard.judge(Status(step_ns=110, step_ns_before=100), n * 0.2) for n in range(1, 12)]
    assert said == [""] * 10 + ["stacks"]


def test_statuses_without_steps_say_nothing_of_steps() -> None:
    guard = OverheadGuard(0.05, ("stacks",))
    slow, none = Status(step_ns=110, step_ns_before=100), Status(step_ns_before=100)
    assert [guard.judge(status, n) for n, status in enumerate((slow, none, slow, none, slow), 1)] == [""] * 4 + [
        "stacks"
    ]


def test_a_window_that_was_too_short_is_told() -> None:
    guard = OverheadGuard(0.02, ("stacks",))
    assert "10.0 % of the time" in guard.missed(Status(seconds=0.01), 0.1)
    assert guard.missed(Status(seconds=0.001), 0.1) == ""
    assert guard.judge(Status(seconds=0.1), 0.2) == "stacks"
    assert guard.missed(Status(seconds=0.1), 0.3) == ""  # what was left out says it all


def test_ranges_are_never_left_out() -> None:
    everything = Options(c_calls=True, stacks=True, memory=True, modules=True)
    torch = Hello((1, 1), 1, framework="torch 2.13.0", can=frozenset({"torch"}))
    assert kinds(everything, torch) == ("c_calls", "stacks", "memory", "ops")
    assert kinds(Options(), Hello((1, 1), 1)) == ()


@given(st.lists(st.floats(0, 2), max_size=40), st.lists(st.sampled_from("abcd"), unique=True))
def test_every_kind_goes_at_most_once_and_nothing_comes_after_abort_but_abort(
    spent: list[float], order: list[str]
) -> None:
    guard = OverheadGuard(0.02, order)
    total, said = 0.0, []
    for second, seconds in enumerate(spent, 1):
        total += seconds
        said.append(guard.judge(Status(seconds=total), second))
    dropped = [word for word in said if word not in ("", ABORT)]
    assert dropped == order[: len(dropped)]
    if ABORT in said:
        assert dropped == order
        assert set(said[said.index(ABORT) :]) <= {"", ABORT}
