"""Slow steps: which of them are, and what explains them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from profd.answers.detectors import slow_steps
from profd.answers.finding import Silence, Verdict
from profd.events import Kind, Tracks

from tests.support.stepped_traces import STEP_US, US, call, facts, kernel, training
from tests.support.tables import Event
from tests.support.verdicts import found, silent

SAMPLED = Tracks(
    threads=[
        {"id": 7, "process": 0, "name": "MainThread"},
        {"id": "samples of 7", "process": 0, "name": "MainThread (samples)"},
    ]
)
Look = Callable[[list[Event]], Verdict]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    return lambda events: slow_steps.look(facts(events, tmp_path / str(len(list(tmp_path.iterdir())))))


def slow(number: int) -> float:
    return 900 if number % 4 == 2 else 300


def test_steps_that_do_more_now_and_then(look: Look) -> None:
    def rows(n: int) -> list[Event]:
        more = [call("aten::sort", n * STEP_US + 250, 500, self_time=500 * US)] if slow(n) > 300 else []
        return [call("aten::mm", n * STEP_US + 10, 200, self_time=200 * US), *more]

    finding = found(look(training(rows, steps=16, lasts=slow)))
    assert finding.steps == [2, 6, 10, 14]
    assert finding.bound_ns == 4 * 600 * US
    assert "aten::sort, called more often in them (by 1), explains 83 % of that" in finding.sentence


def test_steps_that_do_more_among_others_that_are_preempted(look: Look) -> None:
    """GIVEN steps of which as many are preempted as do more WHEN asked THEN the finding is about the latter alone."""

    def lasts(n: int) -> float:
        return 950 if n % 5 in (2, 3) else 300

    def rows(n: int) -> list[Event]:
        more = [call("aten::sort", n * STEP_US + 250, 600, self_time=600 * US)] if n % 5 == 2 else []
        times = lasts(n) / 300 if n % 5 == 3 else 1
        return [
            call(f"aten::{k}", n * STEP_US + 100 * k, 99, self_time=round(99 * times * US)) for k in range(3)
        ] + more

    finding = found(look(training(rows, steps=26, lasts=lasts)))
    assert finding.steps == [2, 7, 12, 17, 22]
    assert finding.bound_ns == 5 * 650 * US
    assert (
        "5 of 10 steps (every 5th) that take more than 1.5 times the median are slow by one cause" in finding.sentence
    )


def test_of_two_causes_the_one_that_explains_more_is_named(look: Look) -> None:
    """GIVEN steps slow by a name in a rhythm, and one that does more WHEN asked THEN the rhythm is told."""

    def lasts(n: int) -> float:
        return 900 if n % 4 == 2 else 500 if n == 9 else 300

    def rows(n: int) -> list[Event]:
        read = 600 if n % 4 == 2 else 5
        more = [call("gc", n * STEP_US + 300, 195, self_time=195 * US)] if n == 9 else []
        work = call("aten::mm", n * STEP_US, 280, self_time=280 * US)
        return [work, call("read", n * STEP_US + 281, read, Kind.USER_ANNOTATION, self_time=read * US), *more]

    finding = found(look(training(rows, steps=26, lasts=lasts)))
    assert finding.steps == [2, 6, 10, 14, 18, 22]
    assert finding.sentence.startswith("6 of 7 steps (every 4th) that take")


def test_steps_slow_by_a_name_among_shorter_ones_that_are_preempted(look: Look) -> None:
    def lasts(n: int) -> float:
        return {2: 950, 3: 500}.get(n % 5, 300)

    def rows(n: int) -> list[Event]:
        times, read = (500 / 300, 10) if n % 5 == 3 else (1, lasts(n) - 280)
        work = call("aten::mm", n * STEP_US, 275 * times, self_time=round(275 * times * US))
        return [work, call("read", n * STEP_US + 280 * times, read, Kind.USER_ANNOTATION, self_time=round(read * US))]

    finding = found(look(training(rows, steps=26, lasts=lasts)))
    assert finding.steps == [2, 7, 12, 17, 22]
    assert "read explains 100 % of that" in finding.sentence


def test_steps_that_do_more_of_many_things(look: Look) -> None:
    def rows(n: int) -> list[Event]:
        return [call(f"aten::{k}", n * STEP_US + 100 * k, 99, self_time=99 * US) for k in range(round(slow(n) / 100))]

    finding = found(look(training(rows, steps=16, lasts=slow)))
    assert "and 5 other names, called more often in them (by 1), explain 99 % of that" in finding.sentence


def test_steps_whose_time_lies_anywhere(look: Look) -> None:
    """GIVEN slow steps in which each call takes as much longer as it takes: preemption WHEN asked THEN no cause."""

    def rows(n: int) -> list[Event]:
        times = slow(n) / 300
        return [
            call(f"aten::{k}", n * STEP_US + 90 * k * times, 90 * times, self_time=round(90 * times * US))
            for k in range(3)
        ]

    assert silent(look(training(rows, steps=16, lasts=slow)))


def test_steps_that_are_slow_by_the_same_name(look: Look) -> None:
    def rows(n: int) -> list[Event]:
        read = slow(n) - 290
        return [
            call("aten::mm", n * STEP_US, 280, self_time=280 * US),
            call("read", n * STEP_US + 281, read, Kind.USER_ANNOTATION, self_time=round(read * US)),
        ]

    finding = found(look(training(rows, steps=16, lasts=slow)))
    assert "(every 4th)" in finding.sentence
    assert "read explains 100 % of that" in finding.sentence


def queued(n: int) -> tuple[float, float]:
    """When a step begins and ends whose host is ahead: it fills a queue in 14 short steps, is held by it in four of a
    kernel's length, and waits for all of it in every twentieth."""
    block, place = divmod(n, 20)
    at = block * 24_000 + [*range(0, 1500, 100), *range(2400, 7200, 1200), 7200][place]
    return at, at + (100 if place < 14 else 1200 if place < 19 else 16_800)


def ahead(n: int, lasts: float) -> list[Event]:
    """Such a step: its kernel is launched at once, and runs behind those of the steps before."""
    begin, end = queued(n)
    wait = call(
        "cudaStreamSynchronize", begin + 2, end - begin - 3, Kind.RUNTIME, self_time=round(end - begin - 3) * US
    )
    return [
        call(f"ProfilerStep#{n}", begin, end - begin, Kind.USER_ANNOTATION),
        *kernel(n * 1200 + 5, lasts, launch=begin),
        *([wait] if end - begin > 5000 else []),
    ]


def test_steps_of_a_host_that_is_ahead_of_its_device_and_waits_for_it(look: Look) -> None:
    """GIVEN steps that last long where the host waits for kernels of the steps before WHEN asked THEN none is slow."""
    assert silent(look([event for n in range(80) for event in ahead(n, 1190)]))


def test_steps_in_which_the_host_waits_and_its_device_does_nothing(look: Look) -> None:
    """GIVEN the same steps over kernels that leave the device idle WHEN asked THEN the wait is named."""
    finding = found(look([event for n in range(80) for event in ahead(n, 90)]))
    assert finding.steps == [19, 39, 59]  # the last step is left out
    assert "cudaStreamSynchronize, called more often in them (by 1), explains 100 % of that" in finding.sentence


def test_steps_with_more_work_for_the_device_are_slow(look: Look) -> None:
    """GIVEN a device that is never idle WHEN each fourth step launches more and waits for it THEN that is found."""

    def rows(n: int) -> list[Event]:
        lasts = slow(n)
        wait = call(
            "cudaDeviceSynchronize", n * STEP_US + 10, lasts - 20, Kind.RUNTIME, self_time=round(lasts - 20) * US
        )
        return [*kernel(n * STEP_US + 2, lasts - 2, launch=n * STEP_US + 1), *([wait] if lasts > 300 else [])]

    finding = found(look(training(rows, steps=16, lasts=slow)))
    assert finding.steps == [2, 6, 10, 14]
    assert "cudaDeviceSynchronize, called more often in them (by 1), explains" in finding.sentence


def test_a_rhythm_of_all_slow_steps_and_not_of_the_longest_alone(look: Look) -> None:
    """GIVEN steps of which nothing records two thirds, each tenth slow in that, some by more WHEN asked THEN the rhythm
    of all of them tells them from chance, though the longest alone have none."""

    def lasts(n: int) -> float:
        return (700 if n in (10, 60, 90) else 990) if n and n % 10 == 0 else 30

    def rows(n: int) -> list[Event]:
        more = (lasts(n) - 30) * 0.3
        return [call("aten::mm", n * STEP_US, 10 + more, self_time=round((10 + more) * US))]

    finding = found(look(training(rows, steps=125, lasts=lasts)))
    assert finding.steps == list(range(10, 124, 10))
    assert "(every 10th)" in finding.sentence
    assert "nothing recorded explains 70 % of that" in finding.sentence


def test_more_names_than_fit(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN 18 names and room for one step of them THEN the longest is looked at; for none, it is said."""
    rows = training(lambda n: [call("aten::mm", n * STEP_US, 100)], steps=17, lasts=slow)
    monkeypatch.setattr(slow_steps, "CELLS_MAX", 18)
    assert silent(look(rows))
    monkeypatch.setattr(slow_steps, "CELLS_MAX", 17)
    verdict = look(rows)
    assert isinstance(verdict, Silence)
    assert verdict.lacking == "the trace has more than 17 different names"


def test_too_few_steps_to_call_one_slow(look: Look) -> None:
    verdict = look(training(lambda n: [], steps=9, lasts=slow))
    assert isinstance(verdict, Silence)
    assert verdict.lacking == "10 steps or more"


def test_slow_steps_in_which_samples_see_a_function(tmp_path: Path) -> None:
    """In each eighth step nothing is recorded for 3 ms, and samples see who takes them."""

    def slow_step(n: int) -> bool:
        return n % 8 == 4

    def save(n: int) -> list[Event]:
        lasts = 4000 if slow_step(n) else 1000
        step = [
            call(f"ProfilerStep#{n}", n * 5000, lasts, Kind.USER_ANNOTATION),
            call("aten::mm", n * 5000, 900, self_time=900 * US),
        ]
        seen = call("/home/ann/train.py(3): save", n * 5000 + 900, 3000, Kind.SAMPLE, thread=1)
        return [*step, seen] if slow_step(n) else step

    events = [event for n in range(40) for event in save(n)]
    finding = found(slow_steps.look(facts(events, tmp_path, tracks=SAMPLED)))
    assert finding.sentence.endswith(
        "nothing recorded explains 100 % of that; samples see save (train.py:3), or C functions that it calls."
    )
