"""Who watches a capture: leases that end with their watcher, and what each caller may see."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest
from profd.capture.manager import CaptureManager
from profd.capture.records import CaptureRecord
from profd.capture.watch import WATCHERS_MAX
from profd.errors import BadInput, Denied, Exhausted, NotFound
from profd.model.capture import State
from profd.targets.selector import Selector

from tests.support.captures import (
    ALICE,
    BOB,
    LONG,
    ROOT,
    FakeSource,
    Rig,
    ended,
    open_ended,
    process,
    request,
)


class TestLease:
    async def test_a_client_that_never_watches(self, rig: Rig) -> None:
        rig.lease_grace = 0.001
        async with rig.running() as manager:
            record = await manager.start(ALICE, open_ended(100))
            record = await ended(manager, record.id)
            # Where the grace was over before the source had begun there is no trace.
            assert record.state in (State.STORED, State.CANCELLED)

    async def test_a_client_that_goes_away(self, rig: Rig) -> None:
        async with rig.running() as manager:
            record = await manager.start(ALICE, open_ended(100))
            await rig.source.started(100)
            stream = manager.watch(ALICE, record.id, lease=True)
            await anext(stream)
            manager._leases[record.id]._grace = 0.0
            await stream.aclose()
            record = await ended(manager, record.id)
            assert record.state is State.STORED
            assert "went away" in record.targets[0].warnings[0]

    async def test_a_stop_is_its_ordinary_end(self, rig: Rig, manager: CaptureManager) -> None:
        record = await manager.start(ALICE, open_ended(100))
        await rig.source.started(100)
        manager.stop(ALICE, record.id)
        record = await ended(manager, record.id)
        assert (record.state, record.targets[0].warnings) == (State.STORED, [])

    async def test_only_its_owner_holds_it(self, manager: CaptureManager) -> None:
        record = await manager.start(ALICE, open_ended(100))
        with pytest.raises(Denied):
            await anext(manager.watch(ROOT, record.id, lease=True))

    async def test_needs_a_source_that_stops(self, rig: Rig) -> None:
        rig.sources = [FakeSource(can_stop=False), FakeSource("pyspy")]
        async with rig.running() as manager:
            record = await manager.start(ALICE, open_ended(100))
            await rig.sources[1].started(100)
            assert record.targets[0].source == "pyspy"
            assert "cannot be stopped" in record.targets[0].choice


class TestSeeing:
    async def test_others_captures_are_not_there(self, manager: CaptureManager) -> None:
        record = await manager.start(ALICE, request(100))
        with pytest.raises(NotFound):
            manager.get(BOB, record.id)
        assert manager.list(BOB, 10) == []
        assert manager.get(ROOT, record.id) is record

    async def test_prefixes_and_the_latest(self, manager: CaptureManager) -> None:
        with pytest.raises(NotFound):
            manager.get(ALICE)
        first = await manager.start(ALICE, request(100))
        second = await manager.start(ALICE, request(101))
        await manager.start(BOB, request(102))
        assert manager.get(ALICE) is second
        assert manager.get(ALICE, first.id[:12]) is first
        with pytest.raises(BadInput):
            manager.get(ALICE, "c")
        assert manager.list(ALICE, 10) == [second, first]
        assert manager.list(ALICE, 1) == [second]

    async def test_a_slow_watcher_sees_the_last_state(self, rig: Rig, manager: CaptureManager) -> None:
        record = await manager.start(ALICE, request(100))
        stream = manager.watch(ALICE, record.id)
        await anext(stream)
        await rig.source.started(100)
        rig.source.finish(100)
        await ended(manager, record.id)
        async with asyncio.timeout(LONG):
            seen = [state.state async for state in stream]
        assert seen[-1] is State.STORED

    async def test_a_source_that_says_the_same_again_wakes_nobody(self, rig: Rig, manager: CaptureManager) -> None:
        record = await manager.start(ALICE, request(100))
        session = await rig.source.started(100)
        told: list[CaptureRecord] = []
        manager.on_changed.add(told.append)
        session.report(State.RECORDING, "the window is open")
        assert told == []
        session.report(State.RECORDING, "step 1 of 2")
        assert told == [record]

    async def test_watchers_are_bounded(self, manager: CaptureManager) -> None:
        record = await manager.start(ALICE, request(100))
        async with contextlib.AsyncExitStack() as open_streams:
            for _ in range(WATCHERS_MAX):
                stream = await open_streams.enter_async_context(contextlib.aclosing(manager.watch(ALICE, record.id)))
                await anext(stream)
            with pytest.raises(Exhausted):
                await anext(manager.watch(ALICE, record.id))

    async def test_sightings(self, rig: Rig, manager: CaptureManager) -> None:
        rig.table.processes[7] = process(7, python=False, framework="", command="vim")
        record = await manager.start(ALICE, request(100))
        seen = await manager.planner.targets(ALICE, Selector())
        assert [(s.process.id.pid, s.held) for s in seen] == [(100, record.id), (101, "")]
        me = replace(ALICE, pid=101)
        assert [s.process.id.pid for s in await manager.planner.targets(me, Selector())] == [100]
        assert [s.process.id.pid for s in await manager.planner.targets(me, Selector(pids=(101,)))] == [101]
        everything = await manager.planner.targets(ROOT, Selector(), everything=True)
        assert [s.process.id.pid for s in everything] == [7, 100, 101, 102]
