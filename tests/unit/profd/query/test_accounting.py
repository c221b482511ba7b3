"""The window is the window: what is known of each thread adds up to all of it."""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.events import Kind, Tracks
from profd.model.run_times import RunTimes, ThreadTimes
from profd.model.traits import Traits
from profd.query.accounting import SHORT_NS, Account, Coverage, account
from profd.segments.meta import TraceMeta

from tests.support.tables import Event, table_of

WINDOW = 1_000 * SHORT_NS
OP, CALL, RANGE, SAMPLE = Kind.CPU_OP, Kind.PYTHON_FUNCTION, Kind.USER_ANNOTATION, Kind.SAMPLE
TRACKS = Tracks(
    processes=[{"id": 7}],
    threads=[
        {"id": 7, "process": 0},
        {"id": 8, "process": 0, "name": "loader"},
        {"id": "samples of 7", "process": 0},
    ],
)


def meta(**changes: Any) -> TraceMeta:
    values = {
        "capture": "c1",
        "window_start_ns": 0,
        "window_end_ns": WINDOW,
        "tracks": TRACKS,
        **changes,
    }
    return TraceMeta(**values)


def accounted(events: list[Event], of: TraceMeta | None = None, *, at_once: int = 1000) -> Account:
    of = of or meta()
    coverage = Coverage(of)
    ordered = sorted(events, key=lambda event: event.start)
    for first in range(0, len(ordered), at_once):
        coverage.add(table_of(ordered[first : first + at_once]))
    return account(coverage, of)


def parts(thread: Any) -> tuple[int, ...]:
    """Operators, calls, samples, ranges, nothing; in hundredths of the window."""
    return tuple(100 * part // WINDOW for part in astuple(thread)[2:7])


def event(kind: Kind, start: float, end: float | None, thread: int = 0) -> Event:
    return Event("x", round(start * WINDOW), None if end is None else round(end * WINDOW), kind, thread)


def test_what_says_more_is_counted_first() -> None:
    answer = accounted(
        [
            event(RANGE, 0.0, 0.9),
            event(OP, 0.1, 0.3),
            event(OP, 0.2, 0.3),  # within the other
            event(CALL, 0.2, 0.5),
            event(SAMPLE, 0.4, 0.7, thread=2),  # of the first thread, on its track beside it
            event(Kind.INSTANT, 0.95, 0.95),
            event(Kind.KERNEL, 0.0, 1.0, thread=1),  # on a device
        ]
    )
    [thread] = answer.threads
    assert (thread.id, parts(thread)) == (7, (20, 20, 20, 30, 10))
    assert answer.window_ns == WINDOW


def test_what_reaches_beyond_the_window_is_counted_within() -> None:
    answer = accounted([event(CALL, -1.0, 0.25), event(OP, 0.75, None), event(OP, 2.0, 3.0)])
    assert parts(answer.threads[0]) == (25, 25, 0, 0, 50)


def test_the_kernel_s_times_stand_beside_and_threads_that_recorded_nothing_are_there() -> None:
    times = RunTimes(
        lasted_ns=WINDOW // 2,
        cores=4,
        threads=[
            ThreadTimes(9, "python", WINDOW // 2, WINDOW // 4, WINDOW // 8),
            ThreadTimes(7, "python", WINDOW // 2, WINDOW // 8, 0),
        ],
        others=2,
        others_ran_ns=5,
        idle=60,
        names={"9": "prefetch"},
    )
    answer = accounted([event(OP, 0.0, 0.5), event(RANGE, 0.0, 0.25, thread=1)], meta(run_times=times))
    found = [
        (thread.id, thread.name, thread.cpu_ns, thread.run_queue_ns, thread.off_cpu_ns) for thread in answer.threads
    ]
    assert found == [
        (9, "prefetch", WINDOW // 2, WINDOW // 4, WINDOW // 4),  # as Python has it
        (7, "MainThread", WINDOW // 4, 0, 3 * WINDOW // 4),
        (8, "loader", None, None, None),
    ]
    assert answer.leading == 1  # what recorded most
    assert accounted([], meta(run_times=replace(times, names={}))).threads[0].name == "python", "no first thread"
    assert (answer.idle_threads, answer.cpu_ns, answer.cores) == (60, WINDOW // 4 + WINDOW // 8 + 5, 4)


def test_a_thread_that_samples_saw_and_that_slept_all_the_time() -> None:
    """It waits for no GIL: who does wakes up every 5 ms."""
    times = RunTimes(WINDOW, threads=[ThreadTimes(9, "pool", WINDOW, 1, 0)], idle=1, idle_ids=[(5, 7)])
    answer = accounted([event(SAMPLE, 0.0, 0.5)], meta(run_times=times))
    [thread] = [thread for thread in answer.threads if thread.id == 7]
    assert (thread.cpu_ns, thread.run_queue_ns, thread.off_cpu_ns) == (0, 0, WINDOW)
    assert (thread.gil_ns, thread.lock_ns) == (0, None)
    assert thread.name == "MainThread", "whatever was not read of it"


@pytest.mark.parametrize(
    ("looks", "in_gil", "in_lock", "waits"),
    [
        (20, 10, 5, (50, 25)),
        (20, 18, 5, (50, 25)),  # no more than it was off the CPU
        (20, None, 5, (None, 25)),  # an interpreter that is not known
        (9, 9, 0, (None, None)),  # too few say nothing
    ],
    ids=["both", "bounded", "no-gil", "few"],
)
def test_what_a_thread_waits_for(looks: int, in_gil: int | None, in_lock: int, waits: Any) -> None:
    times = RunTimes(WINDOW, threads=[ThreadTimes(7, "python", WINDOW, WINDOW // 4, 0, looks, in_gil, in_lock)])
    thread = accounted([event(OP, 0.0, 0.5)], meta(run_times=times)).threads[0]
    assert tuple(ns if ns is None else 100 * ns // WINDOW for ns in (thread.gil_ns, thread.lock_ns)) == waits


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (meta(), "the process ended before they were read"),
        (meta(capture=""), "imported"),
        (
            meta(window_end_ns=SHORT_NS - 1, run_times=RunTimes(lasted_ns=5, threads=[ThreadTimes(7, "x", 5, 5, 0)])),
            "short",
        ),
    ],
)
def test_why_there_are_no_times_by_the_kernel(of: TraceMeta, said: str) -> None:
    answer = accounted([event(OP, 0.0, 0.00001)], of)
    assert said in (answer.message or "")
    assert [thread.cpu_ns for thread in answer.threads] == [None]


@pytest.mark.parametrize(
    ("events", "options", "hint"),
    [
        ([event(OP, 0.0, 0.28)], {}, "outside operators 72 %: add --samples 100hz"),
        ([event(OP, 0.0, 0.28), event(SAMPLE, 0.0, 1.0, 2)], {}, "outside operators 72 %: samples show"),
        ([event(SAMPLE, 0.0, 1.0, 2)], {}, "samples show"),
        ([event(OP, 0.0, 0.9)], {}, None),
        ([event(OP, 0.0, 0.28)], {"stacks": True}, None),
    ],
)
def test_the_hint_says_what_would_show_the_rest(events: list[Event], options: dict[str, Any], hint: str | None) -> None:
    found = accounted(events, meta(options=options)).hint
    assert (found or "").startswith(hint or "")
    assert (found is None) == (hint is None)


def test_no_samples_are_advised_where_none_can_be_had() -> None:
    hint = accounted([event(OP, 0.0, 0.28)], meta(traits=Traits(samples_beside=False))).hint
    assert hint == "outside operators 72 %: add --stacks (about 0.1 us a call)"


def test_an_answer_is_about_a_thread_that_was_seen() -> None:
    """Threads of a compiler may be busier than the one that waits for them, and nothing is known of them."""
    busy = [ThreadTimes(9, "pool", WINDOW, WINDOW, 0), ThreadTimes(7, "python", WINDOW, WINDOW // 8, 0)]
    seen = accounted([event(SAMPLE, 0.0, 1.0)], meta(run_times=RunTimes(lasted_ns=WINDOW, threads=busy)))
    assert seen.leading is not None
    assert seen.threads[seen.leading].id == 7
    unseen = accounted([], meta(run_times=RunTimes(lasted_ns=WINDOW, threads=busy)))
    assert unseen.leading is not None
    assert unseen.threads[unseen.leading].id == 9


def test_an_answer_is_about_no_thread_of_profd() -> None:
    """GIVEN threads of ours that are busier, and that samples saw WHEN asked THEN they are counted apart."""
    tracks = Tracks(threads=[{"id": 5, "process": 0, "name": "Dummy-1"}])  # as Python calls one that it did not start
    busy = [
        ThreadTimes(5, "profd-agent", WINDOW, WINDOW, 0),
        ThreadTimes(6, "profd-agent", WINDOW, WINDOW // 2, 0),
        ThreadTimes(7, "python", WINDOW, WINDOW // 8, 0),
    ]
    of = meta(run_times=RunTimes(lasted_ns=WINDOW, threads=busy), tracks=tracks)
    found = accounted([event(SAMPLE, 0.0, 1.0)], of)
    assert [thread.id for thread in found.threads] == [7]
    assert (found.leading, found.ran_threads, found.cpu_ns) == (0, 1, WINDOW // 8)
    assert (found.own_threads, found.own_cpu_ns) == (2, WINDOW + WINDOW // 2)


def test_without_a_window_nothing_is_known() -> None:
    assert accounted([], meta(window_start_ns=None, window_end_ns=None)) == Account(None)


spans = st.tuples(
    st.sampled_from((OP, CALL, RANGE, SAMPLE)), st.integers(-5, 40), st.integers(0, 20), st.integers(0, 2)
)


@given(st.lists(spans, max_size=30), st.integers(1, 7))
def test_it_adds_up_however_the_rows_are_cut(drawn: list[tuple[Kind, int, int, int]], at_once: int) -> None:
    of = meta(window_end_ns=30)
    events = [Event("x", start, start + lasted, kind, thread) for kind, start, lasted, thread in drawn]
    answer = accounted(events, of, at_once=at_once)
    assert answer == accounted(events, of)
    for thread in answer.threads:
        number = {7: (0, 2), 8: (1,), "samples of 7": (2,)}[thread.id]
        moments = [
            min(
                (layer(event) for event in events if event.thread in number and event.start <= at < (event.end or 0)),
                default=4,
            )
            for at in range(30)
        ]
        assert astuple(thread)[2:7] == tuple(moments.count(number) for number in range(5))


def layer(event: Event) -> int:
    """The slow twin's word of what says most."""
    return (OP, CALL, SAMPLE, RANGE).index(event.kind)


def test_bundle_claims_no_more_than_there_is(tmp_path: Path) -> None:
    """Times of a bundle are anybody's: none is longer than the window."""
    times = RunTimes(lasted_ns=1, threads=[ThreadTimes(7, "x", 1, 1 << 40, 1 << 40)])
    [thread] = accounted([event(OP, 0.0, 0.5)], replace_times(meta(), times)).threads
    assert (thread.cpu_ns, thread.run_queue_ns, thread.off_cpu_ns) == (WINDOW, 0, 0)


def replace_times(of: TraceMeta, times: RunTimes) -> TraceMeta:
    of.run_times = replace(times)
    return of
