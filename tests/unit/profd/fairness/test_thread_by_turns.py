"""One thread for what is short: whose turn it is."""

from __future__ import annotations

import math
import threading
import weakref
from functools import partial
from types import SimpleNamespace

import pytest
from profd.fairness import thread_by_turns
from profd.fairness.thread_by_turns import TOGETHER_SECONDS, ThreadByTurns

ALICE, BOB = 1001, 1002


def test_a_user_with_much_work_keeps_nobody_else_waiting() -> None:
    thread, held, done = ThreadByTurns("turns"), threading.Event(), list[str]()
    begun = threading.Event()
    thread.submit(ALICE, lambda: begun.set() or held.wait())
    begun.wait()
    last = [thread.submit(ALICE, done.append, f"alice {number}") for number in range(3)][-1]
    for number in range(2):
        thread.submit(BOB, done.append, f"bob {number}")
    held.set()
    last.result()
    assert done == ["alice 0", "bob 0", "alice 1", "bob 1", "alice 2"]


def test_what_fails_fails_for_who_asked_alone() -> None:
    thread = ThreadByTurns("turns")
    failed = thread.submit(ALICE, int, "none")
    with pytest.raises(ValueError, match="none"):
        failed.result()
    assert thread.submit(ALICE, int, "7").result() == 7


def test_what_is_cancelled_is_left_out_and_others_are_not() -> None:
    thread, held, done = ThreadByTurns("turns"), threading.Event(), list[int]()
    thread.submit(ALICE, held.wait)
    gone = thread.submit(ALICE, done.append, 1)
    last = thread.submit(ALICE, done.append, 2)
    assert gone.cancel()
    held.set()
    last.result()
    assert (done, thread.waiting) == ([2], 0)


def test_it_is_prepared_once() -> None:
    prepared: list[int] = []
    thread = ThreadByTurns("turns", prepare=lambda: prepared.append(threading.get_ident()))
    ran = [thread.submit(ALICE, threading.get_ident).result() for _ in range(3)]
    assert prepared * 3 == ran


def test_work_is_repeated_until_it_says_never() -> None:
    thread, done, said = ThreadByTurns("turns"), threading.Event(), [0.0, 0.01, math.inf]

    def work() -> float:
        seconds = said.pop(0)
        if not said:
            done.set()
        return seconds

    thread.repeat(ALICE, work)
    assert done.wait(120)
    assert [thread.submit(ALICE, int, "7").result() for _ in range(3)] == [7, 7, 7]
    assert thread._due == []


def test_work_that_has_ended_is_not_repeated_and_is_let_go_of() -> None:
    class Work:
        def __init__(self) -> None:
            self.times = 0

        def __call__(self) -> float:
            self.times += 1
            return 3600.0

    thread, work = ThreadByTurns("turns"), Work()
    repetition = thread.repeat(ALICE, work)
    thread.submit(ALICE, int, "7").result()
    assert (work.times, len(thread._due)) == (1, 1)
    kept = weakref.ref(work)
    del work
    assert kept() is not None
    repetition.end()
    assert kept() is None, "it would have been due in an hour"


def test_work_that_fails_is_not_repeated_and_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    thread, times = ThreadByTurns("turns"), list[int]()

    def work() -> float:
        times.append(1)
        raise ValueError("no such process")

    thread.repeat(ALICE, work)
    assert [thread.submit(BOB, int, "7").result() for _ in range(3)] == [7, 7, 7]
    assert (times, thread._due) == ([1], [])
    assert "no such process" in caplog.text


def test_users_take_turns_with_what_is_repeated() -> None:
    thread, held, done = ThreadByTurns("turns"), threading.Event(), list[str]()
    begun, over = threading.Event(), threading.Event()
    thread.submit(BOB, lambda: begun.set() or held.wait())
    begun.wait()

    def work(name: str) -> float:
        done.append(name)
        if len(done) == 6:
            over.set()
        return 0.0 if len(done) < 4 else math.inf

    for name in ("alice 0", "alice 1"):
        thread.repeat(ALICE, partial(work, name))
    thread.repeat(BOB, partial(work, "bob"))
    held.set()
    assert over.wait(120)
    assert done[:3] == ["alice 0", "bob", "alice 1"]
    assert {name: done.count(name) for name in done} == {"alice 0": 2, "alice 1": 2, "bob": 2}


def test_what_is_due_at_nearly_the_same_time_wakes_the_thread_once(monkeypatch: pytest.MonkeyPatch) -> None:
    thread, now, waits, over = ThreadByTurns("turns"), [0.0], list[float](), threading.Event()
    wait, held, times = thread._changed.wait, threading.Event(), list[float]()

    def waited(seconds: float | None) -> bool:
        if seconds is None:
            return wait()
        waits.append(seconds)
        now[0] += seconds
        return False

    monkeypatch.setattr(thread_by_turns, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(thread._changed, "wait", waited)

    def work() -> float:
        times.append(now[0])
        now[0] += TOGETHER_SECONDS / 10
        if len(times) == 3 * 8:
            over.set()
        return math.inf if len(times) > 2 * 8 else 1.0

    thread.submit(ALICE, held.wait)
    for _ in range(8):
        thread.repeat(ALICE, work)
    held.set()
    assert over.wait(120)
    assert len(waits) == 2


def test_work_of_one_period_is_done_in_the_same_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever each began, and no more often than it asked for."""
    thread, now, over = ThreadByTurns("turns"), [1000.0], threading.Event()
    wait, held, times = thread._changed.wait, threading.Event(), {name: list[float]() for name in range(8)}

    def waited(seconds: float | None) -> bool:
        if seconds is None:
            return wait()
        now[0] += seconds
        return False

    monkeypatch.setattr(thread_by_turns, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(thread._changed, "wait", waited)

    def work(name: int) -> float:
        times[name].append(now[0])
        now[0] += 0.012 if len(times[name]) == 1 else 0.0  # they begin one after the other
        if all(len(each) > 40 for each in times.values()):
            over.set()
        return math.inf if over.is_set() else 0.1

    thread.submit(ALICE, held.wait)
    for name in times:
        thread.repeat(ALICE, partial(work, name))
    held.set()
    assert over.wait(120)
    assert len({at for each in times.values() for at in each[4:30]}) <= 2 * 27
    for each in times.values():
        assert 2.0 <= each[30] - each[10] <= 2.1
