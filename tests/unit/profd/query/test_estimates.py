"""What rows of `top` spent their self time on, by looks at their threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from profd.events import Kind, Tracks
from profd.model.run_times import RunTimes, ThreadTimes
from profd.query.averages import Grouping, averages_of_trace
from profd.query.estimates import FIELDS
from profd.query.part import Part

from tests.support.stepped_traces import stored
from tests.support.tables import Event

SECOND = 1_000_000_000
TRACKS = Tracks(
    processes=[{"id": 7}],
    threads=[{"id": 7, "process": 0}, {"id": "samples of 7", "process": 0}, {"id": 8, "process": 0}],
)


def times(states: str, *, ran: float, queued: float = 0.0, in_gil: int | None = 0) -> RunTimes:
    """A window of 10 s of thread 7, looked at in the middle of each of equal parts."""
    lasted = 10 * SECOND
    looked = [round(lasted * (number + 0.5) / len(states)) for number in range(len(states))]
    thread = ThreadTimes(7, "x", lasted, round(ran * SECOND), round(queued * SECOND), in_gil=in_gil, states=states)
    return RunTimes(lasted, 2, [thread], looked_ns=looked)


def event(name: str, start: float, end: float, thread: int = 0, kind: Kind = Kind.USER_ANNOTATION) -> Event:
    return Event(name, round(start * SECOND), round(end * SECOND), kind, thread)


def estimated(
    path: Path, events: list[Event], run_times: RunTimes, **asked: Any
) -> dict[str, tuple[float | None, ...]]:
    """In seconds, in the order of FIELDS, by name."""
    trace = stored(events, path, tracks=TRACKS, run_times=run_times)
    rows = averages_of_trace(trace, **{"raw": False, "grouping": Grouping(), **asked})
    known = {row.name: [getattr(row, field) for field in FIELDS] for row in rows}
    return {name: tuple(ns if ns is None else ns / SECOND for ns in found) for name, found in known.items()}


NOTHING = (None,) * len(FIELDS)


def test_self_time_is_what_the_thread_did_while_a_row_was_the_innermost(tmp_path: Path) -> None:
    events = [event("outer", 0, 10), event("short", 1, 1.1), event("inner", 5, 10)]
    found = estimated(tmp_path, events, times("r" * 20 + "g" * 10 + "l" * 6 + "." * 4, ran=4, queued=1))
    assert found["outer"] == pytest.approx((4.9 * 0.8, 4.9 * 0.2, 0, 0, 0))
    assert found["inner"] == pytest.approx((0, 0, 2.5, 1.5, 1.0))
    assert found["short"] == NOTHING, "fewer than ten looks"


def test_the_kernel_says_how_much_of_the_time_the_thread_ran(tmp_path: Path) -> None:
    """Of 20 looks 10 saw it run: by chance, for the kernel's counts say 2 of 10 s."""
    found = estimated(tmp_path, [event("all", 0, 10)], times("r." * 10, ran=2))
    assert found["all"] == pytest.approx((2, 0, 0, 0, 8))


def test_rows_of_samples_are_those_of_their_thread_and_others_are_not_known(tmp_path: Path) -> None:
    events = [event("f", 0, 10, 1, Kind.SAMPLE), event("elsewhere", 0, 10, 2)]
    found = estimated(tmp_path, events, times("g" * 10, ran=0))
    assert found == {"f": pytest.approx((0, 0, 10, 0, 0)), "elsewhere": NOTHING}


def test_a_part_has_the_looks_that_fell_into_it(tmp_path: Path) -> None:
    run_times = times("g" * 10 + "l" * 10, ran=0)
    half = Part(window=(5 * SECOND, 10 * SECOND))
    assert estimated(tmp_path, [event("all", 0, 10)], run_times, part=half)["all"] == pytest.approx((0, 0, 0, 5, 0))


@pytest.mark.parametrize(
    ("states", "changes", "expected"),
    [
        ("l" * 10, {"in_gil": None}, (0, 0, None, 10, 0)),
        ("-" * 10, {}, NOTHING),
        ("r" * 9, {}, NOTHING),
    ],
    ids=["no-gil", "unseen", "few"],
)
def test_what_is_not_known_is_not_zero(states: str, changes: Any, expected: Any, tmp_path: Path) -> None:
    found = estimated(tmp_path, [event("all", 0, 10)], times(states, ran=0, **changes))
    assert found["all"] == expected


def test_as_recorded_and_without_looks_there_is_none(tmp_path: Path) -> None:
    assert estimated(tmp_path, [event("all", 0, 10)], times("r" * 20, ran=9), raw=True)["all"] == NOTHING
    assert estimated(tmp_path / "b", [event("all", 0, 10)], RunTimes())["all"] == NOTHING
