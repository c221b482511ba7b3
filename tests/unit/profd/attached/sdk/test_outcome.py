"""What is said of a recording that the process made itself."""

from __future__ import annotations

import pytest
from profd.attached.agents.protocol import Status
from profd.attached.sdk.outcome import cost

SECOND = 1_000_000_000


def test_a_cost_is_told_in_one_unit_without_what_rounds_to_nothing() -> None:
    status = Status(events=51_142, seconds=0.00459, by_source={"ranges": 0.000001, "ops": 0.00459})
    found = cost(status, SECOND // 2, answered=True)
    assert (found.how, found.seconds, found.step_ratio) == ("estimated", 0.00459, None)
    said = "0.9 % of the window; ops 4.59 ms; 51,142 events, each counted at its highest measured cost"
    assert found.detail == said


def test_seconds_of_sources_are_told_from_the_largest() -> None:
    status = Status(events=1, seconds=2.5, by_source={"ops": 0.3, "stacks": 2.2})
    assert cost(status, 10 * SECOND, answered=True).detail.startswith(
        "25.0 % of the window; stacks 2.20 s, ops 0.30 s; 1 event counted"
    )


def test_without_a_window_there_is_no_share() -> None:
    assert "window" not in cost(Status(events=2, seconds=0.1), 0, answered=True).detail


def test_steps_are_told_first() -> None:
    found = cost(Status(seconds=0.1, steps=3, step_ns=3_000_000, step_ns_before=2_000_000), SECOND, answered=True)
    assert (found.how, found.step_ratio) == ("measured", 1.5)
    assert found.detail.startswith("a step took 2.00 ms before, 3.00 ms during; 10.0 % of the window; ")


def test_steps_that_nobody_counted_before_are_compared_with_those_after() -> None:
    found = cost(Status(seconds=0.1, steps=3, step_ns=3_000_000, step_ns_after=2_500_000), SECOND, answered=True)
    assert (found.how, found.step_ratio) == ("measured", 1.2)
    assert found.detail.startswith("a step took 3.00 ms during, 2.50 ms after; ")


@pytest.mark.parametrize(
    ("seconds", "step_ms", "source", "said"),
    [(0.01, 5, "ops", True), (0.3, 5, "ops", False), (0.001, 2.1, "ops", False), (0.01, 5, "stacks", False)],
    ids=["busier", "explained", "alike", "python-traces"],
)
def test_steps_that_are_longer_than_events_explain(seconds: float, step_ms: float, source: str, said: bool) -> None:
    status = Status(
        seconds=seconds, by_source={source: seconds}, steps=3, step_ns=round(step_ms * 1e6), step_ns_before=2_000_000
    )
    detail = cost(status, SECOND, answered=True).detail or ""
    assert ("these explain little of the 2.50x: the host may have been busier" in detail) is said


def test_few_whole_steps_are_told_without_a_ratio() -> None:
    found = cost(Status(seconds=0.1, steps=2, step_ns=3_000_000, step_ns_before=2_000_000), SECOND, answered=True)
    assert (found.how, found.step_ratio) == ("estimated", None)
    assert found.detail.startswith("a step took 2.00 ms before, 3.00 ms during; ")


def test_who_ended_before_it_said_anything_has_no_known_cost() -> None:
    found = cost(Status(), SECOND, answered=False)
    assert (found.how, found.seconds, found.step_ratio) == ("unknown", None, None)
    assert found.detail == "the process ended before it reported what recording took"


def test_who_ended_without_a_last_word_is_told_by_the_one_before() -> None:
    found = cost(Status(events=2_610, seconds=0.01), SECOND, answered=False)
    assert (found.how, found.seconds) == ("estimated", 0.01)
    assert found.detail.endswith("; the time after its last report is not counted")
