"""What callers hear of an end: nothing until it is on disk, since the next daemon knows no more than that."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from profd.capture.manager import CaptureManager
from profd.capture.records import CaptureRecord
from profd.model.capture import Reason, Recording, State
from profd.sources.base import Offer

from tests.support.captures import ALICE, ROOT, Rig, ended, request
from tests.support.waiting import eventually

Ending = Callable[[Rig, CaptureManager, str], object]

ENDINGS: dict[State, Ending] = {
    State.STORED: lambda rig, manager, capture: rig.source.finish(100),
    State.PARTIAL: lambda rig, manager, capture: rig.source.finish(
        100, rig.source.with_file(100, reason=Reason.TRUNCATED, message="cut")
    ),
    State.FAILED: lambda rig, manager, capture: rig.source.finish(100, OSError(5, "broken")),
    State.REFUSED: lambda rig, manager, capture: rig.source.finish(100, Recording(State.REFUSED, Reason.NO_SOURCE)),
    State.BUSY: lambda rig, manager, capture: rig.source.finish(100, Recording(State.BUSY, Reason.OTHER_PROFILER)),
    State.CANCELLED: lambda rig, manager, capture: (
        manager.stop(ALICE, capture),
        rig.source.finish(100, Recording(State.CANCELLED)),
    ),
}


@asynccontextmanager
async def stuck(rig: Rig) -> AsyncIterator[threading.Event]:
    """A disk that answers while the event is set, and in the end."""
    rig.records.gate = disk = threading.Event()
    try:
        yield disk
    finally:
        disk.set()


def written(rig: Rig, capture: str) -> tuple[list[int], bool]:
    """States of its targets on disk, and whether it has ended there."""
    value: dict[str, Any] = rig.records.kept[capture]
    return [target["state"] for target in value["targets"]], value["finished_ns"] is not None


@pytest.mark.parametrize("end", ENDINGS, ids=lambda state: state.label)
async def test_an_end_is_heard_of_once_it_is_on_disk(rig: Rig, end: State) -> None:
    rig.source.stubborn = True
    async with rig.running() as manager, stuck(rig) as disk:
        disk.set()
        capture = (await manager.start(ALICE, request(100))).id
        await rig.source.started(100)
        # GIVEN a disk that does not answer
        disk.clear()
        ENDINGS[end](rig, manager, capture)
        await eventually(lambda: manager.active == 0)
        # THEN whoever asks hears that it goes on, in every way
        for found in (manager.get(ALICE, capture), manager.list(ROOT, 10)[0], manager.stop(ALICE, capture)):
            [target] = found.targets
            assert (target.state.terminal, target.reason, target.trace) == (False, Reason.NONE, "")
            assert not found.terminal
            assert found.finished_ns is None
        # WHEN it does THEN they hear the end that the next daemon will tell
        disk.set()
        found = await ended(manager, capture)
        assert found.state is end
        assert written(rig, capture) == ([end], True)
        assert manager.get(ALICE, capture) is found


async def test_who_is_declined_hears_so_once_it_is_on_disk(rig: Rig) -> None:
    rig.source.offered = Offer(False, "it has no torch.", "Set KINETO_USE_DAEMON=1.")
    async with rig.running() as manager, stuck(rig) as disk:
        heard: list[CaptureRecord] = []

        async def ask() -> None:
            heard.append(await manager.start(ALICE, request(100)))

        asking = asyncio.ensure_future(ask())
        await eventually(lambda: manager.list(ALICE, 1))
        assert manager.list(ALICE, 1)[0].state is State.REQUESTED
        disk.set()
        await asking
        assert heard[0].state is State.REFUSED
        assert heard[0].finished_ns is not None
        assert written(rig, heard[0].id) == ([State.REFUSED], True)
        assert [line[0] for line in rig.audit.lines] == ["capture.start", "capture.end"]


async def test_the_end_of_one_target_waits_for_its_own_write(rig: Rig) -> None:
    async with rig.running() as manager, stuck(rig) as disk:
        disk.set()
        capture = (await manager.start(ALICE, request(100, 101))).id
        await rig.source.started(100)
        await rig.source.started(101)
        disk.clear()
        rig.source.finish(100, Recording(State.REFUSED, Reason.NO_SOURCE))
        live = manager.record(capture)
        assert live is not None
        await eventually(lambda: live.targets[0].state.terminal)
        assert [target.state for target in manager.get(ALICE, capture).targets] == [State.RECORDING] * 2
        # It ends behind the write that has the first one's.
        rig.source.finish(101, Recording(State.BUSY, Reason.OTHER_PROFILER))
        await eventually(lambda: live.terminal)
        assert manager.get(ALICE, capture).finished_ns is None
        disk.set()
        await ended(manager, capture)
        assert written(rig, capture) == ([State.REFUSED, State.BUSY], True)


async def test_a_disk_that_refuses_keeps_nobody_waiting(rig: Rig) -> None:
    async with rig.running() as manager:
        capture = (await manager.start(ALICE, request(100))).id
        await rig.source.started(100)
        rig.records.fail = OSError(28, "No space left on device")
        rig.source.finish(100)
        assert (await ended(manager, capture)).state is State.STORED
