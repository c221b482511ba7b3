"""Findings by looks at what the thread of the steps waits for: the GIL, and other locks."""

from __future__ import annotations

from pathlib import Path

import pytest
from profd.answers.detectors import gil_contention, lock_wait
from profd.answers.finding import Finding, Silence, Verdict
from profd.events import Kind, Tracks
from profd.model.run_times import RunTimes, ThreadTimes

from tests.support.stepped_traces import STEP_US, US, call, facts, training
from tests.support.tables import Event
from tests.support.verdicts import found

TRACKS = Tracks(
    threads=[
        {"id": 7, "process": 0, "name": "MainThread"},
        {"id": "samples of 7", "process": 0, "name": "MainThread (samples)"},
        {"id": 8, "process": 0, "name": "stats"},
    ]
)
STEPS = 21  # the first one is left out
ANNOTATION = Kind.USER_ANNOTATION
WAITS_IN = "/home/ann/train.py(10): Trainer.publish"


def times(states: str, in_gil: int | None = 0, others: int = 300) -> RunTimes:
    """Looks at the thread, evenly over the window."""
    whole = STEPS * STEP_US * US
    looked = [round((at + 0.5) * whole / max(len(states), 1)) for at in range(len(states))]
    mine = ThreadTimes(7, "python", 1000, 200, 0, len(states), in_gil, states.count("l"), states)
    return RunTimes(
        1000,
        2,
        [mine, ThreadTimes(8, "python", 1000, others, 0), ThreadTimes(9, "profd-agent", 1000, 999, 0)],
        looked_ns=looked,
    )


@pytest.mark.parametrize(
    ("looks", "in_gil", "expected"),
    [(50, 5, True), (50, 4, False), (60, 5, False), (30, 3, True), (20, 2, False), (9, 9, None)],
)
def test_a_thread_that_wants_the_gil(looks: int, in_gil: int, expected: bool | None, tmp_path: Path) -> None:
    traced = facts(training(lambda n: [], STEPS), tmp_path, tracks=TRACKS, run_times=times("r" * looks, in_gil))
    verdict = gil_contention.look(traced)
    if expected is None:
        assert isinstance(verdict, Silence)
        assert "looks" in verdict.lacking
    elif expected:
        finding = found(verdict)
        assert finding.sentence.startswith("MainThread waits for the GIL 10 % of the time: another thread runs Python")
        assert "of the others stats runs most, 30 %" in finding.sentence
        assert finding.bound_ns == (STEPS - 1) * STEP_US * US // 10
    else:
        assert isinstance(verdict, Silence)
        assert not verdict.lacking


def test_an_interpreter_whose_gil_is_not_known_says_nothing_of_it(tmp_path: Path) -> None:
    traced = facts(training(lambda n: [], STEPS), tmp_path, tracks=TRACKS, run_times=times("l" * 50, None))
    assert isinstance(gil_contention.look(traced), Silence)


def waiting(states: str, path: Path, name: str = WAITS_IN, others: list[Event] | None = None) -> Verdict:
    """A function that samples see in the second half of each step, in the standard library's locks."""

    def rows(n: int) -> list[Event]:
        seen = call(name, n * STEP_US + 500, 500, Kind.SAMPLE, thread=1)
        below = call("threading.py(300): Condition.wait", n * STEP_US + 500, 500, Kind.SAMPLE, thread=1, parent=seen)
        return [call("aten::mm", n * STEP_US, 500), seen, below]

    events = [*training(rows, STEPS), *(others or [])]
    return lock_wait.look(facts(events, path, tracks=TRACKS, run_times=times(states)))


def test_a_function_that_waits_for_a_lock(tmp_path: Path) -> None:
    """GIVEN half of the steps in it, half of these in a lock THEN a quarter of the time is that wait."""
    finding = found(waiting("rrlr" * STEPS, tmp_path))
    assert finding.sentence.startswith(
        "MainThread waits for a lock, a condition or a queue 25 % of the time, in Trainer.publish (train.py:10)"
    )
    assert finding.bound_ns == (STEPS - 1) * STEP_US * US // 4


@pytest.mark.parametrize("states", ["rrr." * STEPS, "llrr" * STEPS, "rrgr" * STEPS, "l" * 4], ids=str)
def test_other_waits_are_no_locks(states: str, tmp_path: Path) -> None:
    """Off the CPU; in operators, which samples do not count; in the GIL; too few looks."""
    assert isinstance(waiting(states, tmp_path), Silence)


def test_a_wait_of_torch_and_of_ranks_for_each_other_is_none(tmp_path: Path) -> None:
    states = "rrlr" * STEPS
    assert isinstance(waiting(states, tmp_path / "a", "torch/utils/data/dataloader.py(700): _next"), Silence)
    talks = [call("gloo:all_reduce", 100, 10, Kind.USER_ANNOTATION, thread=2)]
    assert isinstance(waiting(states, tmp_path / "b", others=talks), Silence)
    assert isinstance(waiting(states, tmp_path / "c"), Finding)


def test_a_loader_that_waits_is_the_loader_s(tmp_path: Path) -> None:
    loads = [
        call("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", n * STEP_US + 500, 500, ANNOTATION)
        for n in range(STEPS)
    ]
    assert isinstance(waiting("rrlr" * STEPS, tmp_path, others=loads), Silence)
