"""What happens on the host, as it is told to those who watch: whole, then what changes, and nothing for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace

import pytest
from profd import limits
from profd.capture.host_watch import HostWatch, Moment, Rows
from profd.capture.manager import CaptureManager
from profd.errors import Exhausted
from profd.fairness.shares import Refused
from profd.model.capture import State
from profd.sources.base import Offer
from profd.targets.process import Process

from tests.support.captures import ALICE, BOB, LONG, ROOT, Rig, ended, process, request
from tests.support.waiting import eventually


class Watch:
    """One watch, and what it has been told so far."""

    def __init__(self, moments: AsyncGenerator[Moment, None]) -> None:
        self.moments = moments
        self.processes: dict[int, str] = {}
        self.captures: dict[str, str] = {}
        self.wholes = 0
        self.left_out = 0

    async def until(self, processes: dict[int, str] | None = None, captures: list[str] | None = None) -> None:
        """Read until this is told."""
        async with asyncio.timeout(LONG):
            while processes not in (None, self.processes) or captures not in (None, sorted(self.captures.values())):
                await self.read()

    async def read(self) -> Moment:
        """The next moment."""
        moment = await anext(self.moments)
        self.wholes += moment.whole
        self.processes = {pid: row for pid, row in self.processes.items() if pid not in moment.gone}
        self.processes |= moment.processes
        kept = {name: row for name, row in self.captures.items() if name not in moment.captures_gone}
        self.captures = {**kept, **moment.captures}
        self.left_out = moment.left_out
        return moment


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIVE_SECONDS", 0.001)
    monkeypatch.setattr(limits, "LIVE_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(limits, "LIVE_LOOK_CORES", 1e9)
    monkeypatch.setattr(limits, "LIVE_CORES", 1e9)
    monkeypatch.setattr(limits, "LIVE_KEPT_SECONDS", 0.0)


@pytest.fixture
def host(manager: CaptureManager) -> HostWatch:
    rows = Rows(
        lambda one: f"{one.process.command} {'held' if one.held else 'free'}",
        lambda record: f"{record.owner} {record.state.label}",
    )
    return HostWatch(manager, rows)


@asynccontextmanager
async def watching(host: HostWatch, caller: object = ALICE) -> AsyncIterator[Watch]:
    async with aclosing(host.follow(caller)) as moments:  # type: ignore[arg-type]  # a Caller
        yield Watch(moments)


FREE, HELD = "python train.py free", "python train.py held"


async def test_the_whole_then_what_changes(rig: Rig, manager: CaptureManager, host: HostWatch) -> None:
    async with watching(host) as watch:
        first = await watch.read()
        assert first.whole
        assert watch.processes == {100: FREE, 101: FREE}
        record = await manager.start(ALICE, request(100))
        await watch.until({100: HELD, 101: FREE}, ["alice recording"])
        rig.source.finish(100)
        await watch.until({100: FREE, 101: FREE}, ["alice stored"])
        rig.table.end(101)
        await watch.until({100: FREE})
        rig.table.processes[103] = process(103)
        await watch.until({100: FREE, 103: FREE})
        assert watch.wholes == 1
        assert (await ended(manager, record.id)).state is State.STORED


async def test_others_see_nothing_of_it_and_an_admin_all(manager: CaptureManager, host: HostWatch) -> None:
    async with watching(host, BOB) as bob, watching(host, ROOT) as root:
        await bob.read()
        await root.read()
        await manager.start(ALICE, request(100))
        await root.until({100: HELD, 101: FREE, 102: FREE}, ["alice recording"])
        await manager.start(BOB, request(102))
        await bob.until({102: HELD}, ["bob recording"])
        assert host.watched == 2


async def test_what_does_not_change_is_told_once(manager: CaptureManager, host: HostWatch) -> None:
    async with watching(host) as watch:
        await watch.read()
        await manager.start(ALICE, request(100))
        told = []
        async with asyncio.timeout(LONG):
            while watch.processes[100] != HELD:
                told.append(await watch.read())
    assert [pid for moment in told for pid in moment.processes] == [100]


async def test_nobody_waits_for_a_look_at_processes_of_others(rig: Rig, host: HostWatch) -> None:
    prepare, looks, gate = rig.source.prepare, asyncio.Event(), asyncio.Event()

    async def unless_alices(processes: Sequence[Process]) -> None:
        if any(one.uid == ALICE.uid for one in processes):
            looks.set()
            await gate.wait()
        await prepare(processes)

    rig.source.prepare = unless_alices  # type: ignore[method-assign]
    async with watching(host) as alice, watching(host, BOB) as bob, asyncio.timeout(LONG):
        waits = asyncio.create_task(alice.read())
        await looks.wait()
        await bob.read()
        assert set(bob.processes) == {102}
        assert not waits.done()
        gate.set()
        await waits


async def test_who_asks_is_not_told(host: HostWatch) -> None:
    async with watching(host, replace(ALICE, pid=101)) as one, watching(host) as other:
        await one.read()
        await other.read()
        assert (set(one.processes), set(other.processes)) == ({100}, {100, 101})
        assert host.watched == 1


async def test_nothing_is_done_while_nobody_watches(rig: Rig, manager: CaptureManager, host: HostWatch) -> None:
    async with watching(host) as one, watching(host) as other:
        await one.read()
        await other.read()
        assert host.watched == 1
    await eventually(lambda: host.watched == 0)
    assert manager.on_changed == set()
    await eventually(lambda: not [one for one in asyncio.all_tasks() if "_Feed" in repr(one)])
    # AND one who comes later is told what there is then
    rig.table.end(101)
    async with watching(host) as watch:
        await watch.read()
        assert watch.processes == {100: FREE}


async def test_who_comes_and_goes_all_the_time_costs_one_look(
    rig: Rig, host: HostWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LIVE_LOOK_SECONDS", LONG)
    monkeypatch.setattr(limits, "LIVE_KEPT_SECONDS", LONG)
    looks = []
    snapshot = rig.table.snapshot
    monkeypatch.setattr(rig.table, "snapshot", lambda: looks.append(1) or snapshot())
    for _ in range(12):
        async with watching(host) as watch:
            assert (await watch.read()).whole
            assert set(watch.processes) == {100, 101}
    assert len(looks) == 1


async def test_many_watches_cost_one_look(rig: Rig, host: HostWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIVE_LOOK_SECONDS", LONG)
    looks = []
    snapshot = rig.table.snapshot
    monkeypatch.setattr(rig.table, "snapshot", lambda: looks.append(1) or snapshot())
    async with AsyncExitStack() as stack:
        for _ in range(limits.LIVE_PER_UID_MAX):
            await (await stack.enter_async_context(watching(host))).read()
        assert len(looks) == 1
        # AND there are so many
        with pytest.raises(Refused, match="watches of the host at once"):
            await (await stack.enter_async_context(watching(host))).read()
        await (await stack.enter_async_context(watching(host, BOB))).read()
    async with watching(host) as watch:
        await watch.read()


async def test_a_slow_watch_misses_steps_and_not_the_last(rig: Rig, manager: CaptureManager, host: HostWatch) -> None:
    async with watching(host) as slow, watching(host) as quick:
        await slow.read()
        await quick.read()
        for _ in range(3):
            await manager.start(ALICE, request(100))
            await rig.source.started(100)
            rig.source.finish(100)
            await quick.until({100: FREE, 101: FREE})
            await quick.until(captures=["alice stored"] * len(manager.list(ALICE, 9)))
        moment = await slow.read()
        assert list(slow.captures.values()) == ["alice stored"] * 3
        assert not moment.whole


async def test_many_processes_are_counted_and_the_recorded_come_first(
    rig: Rig, manager: CaptureManager, host: HostWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LIVE_PROCESSES_MAX", 2)
    rig.table.processes |= {pid: process(pid) for pid in range(110, 120)}
    await manager.start(ALICE, request(115))
    async with watching(host) as watch:
        await watch.read()
        await watch.until({100: FREE, 115: HELD})
        assert watch.left_out == 10


async def test_ended_captures_are_few(
    rig: Rig, manager: CaptureManager, host: HostWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LIVE_ENDED", 1)
    rig.source.offers[101] = Offer(False, "no torch.")
    async with watching(host) as watch:
        await watch.read()
        running = await manager.start(ALICE, request(100))
        for _ in range(3):
            last = await manager.start(ALICE, request(101))
        async with asyncio.timeout(LONG):
            while watch.captures != {running.id: "alice recording", last.id: "alice refused"}:
                await watch.read()


async def test_a_beat_says_that_it_goes_on(host: HostWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    async with watching(host) as watch:
        await watch.read()
        await watch.until({100: FREE, 101: FREE}, [])
        monkeypatch.setattr(limits, "LIVE_BEAT_SECONDS", 0.001)
        async with asyncio.timeout(LONG):
            while (beat := await watch.read()) != Moment():
                assert not beat.whole


async def test_a_host_that_cannot_be_seen_ends_it(rig: Rig, host: HostWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    def blind() -> None:
        raise Exhausted("processes do not answer")

    async with watching(host) as watch:
        await watch.read()
        monkeypatch.setattr(rig.table, "snapshot", blind)
        async with asyncio.timeout(LONG):
            with pytest.raises(Exhausted, match="do not answer"):
                await watch.until({})
    await eventually(lambda: host.watched == 0)
