"""One thread for what is short: whose turn it is."""

from __future__ import annotations

import threading

import pytest
from profd.fairness.thread_by_turns import ThreadByTurns

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
