"""Why a rank is late, where samples see it in Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from profd.events import Kind
from profd.model.tracks import Tracks

from tests.support.many_ranks import ask, member
from tests.support.tables import Event

AUGMENT, MAIN = "/home/ann/train.py(4): augment", "/home/ann/train.py(10): main"
LATE_NS = 2_000_000
SAMPLED = Tracks(
    threads=[
        {"id": 7, "process": 0, "name": "MainThread"},
        {"id": "samples of 7", "process": 0, "name": "MainThread (samples)"},
        {"id": 9, "process": 0, "name": "gloo"},
    ]
)


def step(rank: int, number: int, sampled: bool, seen_on_both: bool) -> list[Event]:
    """Of rank 1 an operator more, of 10 us, and 2 ms of Python before it."""
    at = 10_000_000 * number + 37_000 * number * number
    end = at + 7_000_000 + 20_000 * (number % 5)
    work = at + 4_000_000 + 17_000 * (number % 3)
    arrived = work + LATE_NS * rank
    found = [
        Event(f"ProfilerStep#{number}", at, end, Kind.USER_ANNOTATION),
        Event("aten::mm", at, work),
        Event("gloo:all_reduce", arrived, end, Kind.USER_ANNOTATION, 2),
    ]
    if sampled:
        name = AUGMENT if rank or seen_on_both else MAIN
        found.append(Event(name, work, work + LATE_NS - 10_000, Kind.SAMPLE, 1))
    if rank:
        found.append(Event("aten::add", arrived - 10_000, arrived, fields={"self_time": 10_000}))
    return found


def why(folder: Path, sampled: bool, seen_on_both: bool) -> str:
    traces = []
    for rank in (0, 1):
        events = [event for number in range(30) for event in step(rank, number, sampled, seen_on_both)]
        traces.append(member(folder, rank, sorted(events, key=lambda one: one.start), tracks=SAMPLED))
    (late,) = ask("ranks", traces)["stragglers"]
    assert late["rank"] == 1
    return str(late["sentence"])


def test_a_function_that_samples_see_on_the_late_rank_alone(tmp_path: Path) -> None:
    assert "augment (train.py:4) takes it 1.99 ms a step longer than the others, as samples see it" in why(
        tmp_path, sampled=True, seen_on_both=False
    )


@pytest.mark.parametrize("sampled", [True, False], ids=["on both", "no samples"])
def test_calls_that_explain_little_are_told_as_such(tmp_path: Path, sampled: bool) -> None:
    sentence = why(tmp_path, sampled=sampled, seen_on_both=True)
    assert "it calls aten::add 28 times in 28 steps, the others 0, 10 us a step, which is little of it" in sentence


def test_a_recorded_function_that_takes_longer_is_named_before_calls_that_take_little(tmp_path: Path) -> None:
    """GIVEN `--stacks`, and a function that both ranks call WHEN it takes the late one 1.9 ms more THEN that is why."""
    traces = []
    for rank in (0, 1):
        events = [event for number in range(30) for event in step(rank, number, False, False)]
        for mm in [event for event in events if event.name == "aten::mm"]:
            assert mm.end is not None
            lasts = 1_900_000 if rank else 1_000
            events.append(Event(AUGMENT, mm.end, mm.end + lasts, Kind.PYTHON_FUNCTION, fields={"self_time": lasts}))
        ordered = sorted(events, key=lambda one: one.start)
        traces.append(member(tmp_path, rank, ordered, tracks=SAMPLED, options={"stacks": True}))
    (late,) = ask("ranks", traces)["stragglers"]
    assert "augment takes it 1.9 ms a step longer than the others" in late["sentence"]
