from __future__ import annotations

import asyncio
import math
import os
from types import SimpleNamespace

import pytest
from profd.fairness.thread_by_turns import Repetition
from profd.sources.pyspy import watching
from profd.sources.pyspy.watching import LOOKS_SHARE, RARE_SECONDS, pause_seconds, watch


class Thread:
    """Does the work of all repetitions when the test says so."""

    def __init__(self) -> None:
        self.works: list[Repetition] = []

    def repeat(self, uid: int, work: object) -> Repetition:
        self.works.append(Repetition(uid, work))  # type: ignore[arg-type]  # what the product gives
        return self.works[-1]

    def look(self, number: int = 0) -> float:
        work = self.works[number].work
        assert work is not None
        return work()


@pytest.fixture
def thread(monkeypatch: pytest.MonkeyPatch) -> Thread:
    thread = Thread()
    monkeypatch.setattr(watching, "looks", thread)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return thread


async def test_only_a_look_that_finds_something_wakes_who_waits(thread: Thread) -> None:
    found = [False]
    with watch(1000, lambda: found[0], 0.1, nobody_asked=False) as news:
        assert [thread.look(), thread.look(), thread.look()] == [0.1] * 3
        await asyncio.sleep(0)
        assert not news.is_set()
        found[0] = True
        assert thread.look() == math.inf
        await asyncio.wait_for(news.wait(), 120)
    assert thread.works[0].work is None, "nobody looks any more"


async def test_the_first_look_is_not_at_once(thread: Thread) -> None:
    with watch(1000, lambda: True, 0.1, nobody_asked=False):
        assert thread.look() == 0.1
        assert thread.look() == math.inf


async def test_looks_that_cost_much_are_rarer_where_nobody_asked(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = [0.0]
    clock = SimpleNamespace(thread_time=lambda: spent[0])
    monkeypatch.setattr(watching, "time", clock)

    def costs() -> bool:
        spent[0] += 0.001
        return False

    with watch(1000, costs, 0.1, nobody_asked=True), watch(1000, costs, 0.1, nobody_asked=False):
        assert [thread.look(0), thread.look(1)] == [0.1, 0.1]
        assert thread.look(0) == pytest.approx(2 * 0.001 / (LOOKS_SHARE * 2))
        assert thread.look(1) == 0.1
        with watch(1000, costs, 0.1, nobody_asked=True):
            assert thread.look(0) == pytest.approx(2 * 2 * 0.001 / (LOOKS_SHARE * 2)), "they share the host"
    assert pause_seconds(0.0005) == pytest.approx(0.5), "those that are over do not"
    assert pause_seconds(60) == RARE_SECONDS
