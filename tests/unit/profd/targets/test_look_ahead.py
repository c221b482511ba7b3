"""Looks ahead: each process once while it waits, and never without end."""

from __future__ import annotations

import threading

import pytest
from profd.targets import look_ahead as module
from profd.targets.look_ahead import LookAhead
from profd.targets.process import ProcessId

WAIT_SECONDS = 120.0


class Looks:
    """A look that takes until it is let."""

    def __init__(self) -> None:
        self.at: list[int] = []
        self.begun = threading.Semaphore(0)
        self.let = threading.Event()

    def __call__(self, pid: int) -> None:
        self.at.append(pid)
        self.begun.release()
        assert self.let.wait(WAIT_SECONDS)


def test_who_asks_again_and_again_waits_once() -> None:
    looks = Looks()
    ahead = LookAhead(looks)
    ahead.ask(ProcessId(1, 1))
    assert looks.begun.acquire(timeout=WAIT_SECONDS)
    for _ in range(1000):
        ahead.ask(ProcessId(1, 1))  # it has changed while it was looked at: once more, and no oftener
        ahead.ask(ProcessId(2, 1))
    looks.let.set()
    for _ in range(2):
        assert looks.begun.acquire(timeout=WAIT_SECONDS)
    ahead.close()
    assert looks.at == [1, 1, 2]


def test_no_more_wait_than_may_be_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGENTS_MAX", 3)
    looks = Looks()
    ahead = LookAhead(looks)
    ahead.ask(ProcessId(1, 1))
    assert looks.begun.acquire(timeout=WAIT_SECONDS)
    for pid in range(2, 10):
        ahead.ask(ProcessId(pid, 1))
    looks.let.set()
    for _ in range(3):
        assert looks.begun.acquire(timeout=WAIT_SECONDS)
    ahead.close()
    assert looks.at == [1, 2, 3, 4]
    ahead.ask(ProcessId(5, 1))  # too late, and nobody minds
