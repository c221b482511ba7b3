"""Names of users, where the host's directory answers late or not at all."""

from __future__ import annotations

import threading
import time

import pytest
from profd.kernel.names import Directory, SilentNames
from profd.limits import NAMES_KEPT_SECONDS


class Slow:
    """A directory that answers for some at once, and for others when it is let go."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.asked: list[int] = []

    def __call__(self, uid: int) -> str:
        self.asked.append(uid)
        if uid >= 2000:
            self.gate.wait()
        if uid == 404:
            raise KeyError(uid)
        return f"u{uid}.{self.asked.count(uid)}"


@pytest.fixture
def slow():
    slow = Slow()
    yield slow
    slow.gate.set()


def test_who_is_unknown_has_no_name(slow: Slow) -> None:
    assert Directory(slow).of(404) is None


def test_an_answer_is_kept_for_some_seconds(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Directory(slow)
    assert [names.of(1001), names.of(1001)] == ["u1001.1", "u1001.1"]
    later = time.monotonic() + NAMES_KEPT_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert names.of(1001) == "u1001.2"


def test_one_that_does_not_come_keeps_no_other_waiting_and_is_told_when_it_has_come(slow: Slow) -> None:
    names = Directory(slow)
    with pytest.raises(SilentNames):
        names.of(2001, 0.01)
    assert names.of(1001, 60) == "u1001.1"
    with pytest.raises(SilentNames):
        names.of(2001, 60)  # a moment, by now
    slow.gate.set()
    while True:
        try:
            assert names.of(2001) == "u2001.1"
            break
        except SilentNames:
            continue
    assert slow.asked.count(2001) == 1


def test_where_nothing_comes_any_more_the_last_answer_holds(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Directory(slow)
    slow.gate.set()
    assert names.of(2001) == "u2001.1"
    slow.gate.clear()
    later = time.monotonic() + NAMES_KEPT_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert names.of(2001, 0.01) == "u2001.1"


def test_so_many_are_asked_for_at_once_and_no_more(slow: Slow) -> None:
    names = Directory(slow, at_once=3)
    for uid in range(2000, 2010):
        with pytest.raises(SilentNames):
            names.of(uid, 0.01)
    assert slow.asked == [2000, 2001, 2002]
