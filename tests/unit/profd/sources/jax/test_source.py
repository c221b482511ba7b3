"""What the source says of processes, and how the planner waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from profd.capture.choice import in_order
from profd.capture.planner import Request
from profd.model.capture import Options, Reason, State
from profd.sources.base import Session
from profd.sources.jax.finder import Finder, SocketAnswer
from profd.sources.jax.listeners import Listening, ListeningPort
from profd.sources.jax.source import JaxSource
from profd.targets.process import Process
from profd.targets.selector import Selector

from tests.support.captures import ALICE, LONG, FakeSource, FakeTable, Rig, process, request

JOB = process(100, xla=True, framework="jax")
PLAIN = process(101)


class World:
    """One port, whose answer comes when the test wants."""

    def __init__(self) -> None:
        self.where = Listening((ListeningPort(9, "ipv4:127.0.0.1:9", frozenset((1,))),))
        self.answer = SocketAnswer.PROFILER
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.looked: list[int] = []
        self.source = JaxSource(Finder(self.probe, self.look))

    def look(self, process: Process) -> Listening:
        self.looked.append(process.id.pid)
        return self.where

    async def probe(self, address: str) -> SocketAnswer:
        self.asked.set()
        await self.gate.wait()
        return self.answer


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)


@pytest.fixture
def world() -> World:
    return World()


def rig(folder: Path, *sources: object) -> Rig:
    made = Rig(folder, FakeTable([JOB, PLAIN]))
    made.sources = [*sources, FakeSource("pyspy")]  # type: ignore[list-item]
    return made


def test_traces_before_samples() -> None:
    sources = in_order([FakeSource("pyspy"), JaxSource(), FakeSource("kineto")])
    assert [source.name for source in sources] == ["kineto", "jax", "pyspy"]


async def test_a_start_beside_a_ps_waits_for_its_answer(world: World, tmp_path: Path) -> None:
    world.gate.clear()
    async with rig(tmp_path, world.source).running() as manager:
        listing = asyncio.create_task(manager.planner.targets(ALICE, Selector()))
        async with asyncio.timeout(LONG):
            await world.asked.wait()
        planning = asyncio.create_task(manager.planner.estimate(ALICE, request(100)))
        # Somebody who asked and went away takes no answer with him.
        listing.cancel()
        world.gate.set()
        (plan,) = await planning
    assert plan.choice.source is world.source


async def test_others_are_not_looked_at(world: World, tmp_path: Path) -> None:
    async with rig(tmp_path, world.source).running() as manager:
        sightings = await manager.planner.targets(ALICE, Selector())
    offers = {sighting.process.id.pid: dict(sighting.offers) for sighting in sightings}
    assert world.looked == [100]
    assert offers[100]["jax"].can
    assert not offers[101]["jax"].can
    assert await world.source.prepare([process(5, xla=True, stopped=True), process(6, xla=True, zombie=True)]) is None
    assert world.looked == [100]


async def test_a_daemon_without_the_right_does_not_look(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 4711)
    await world.source.prepare([JOB])
    assert world.looked == []
    assert world.source.offer(JOB).why_code is Reason.NOT_PERMITTED


async def test_why_there_is_no_server(world: World) -> None:
    said = []
    for where, answer in (
        (Listening(), SocketAnswer.OTHER),
        (world.where, SocketAnswer.SILENT),
        (Listening(shared=(9,)), SocketAnswer.OTHER),
        (Listening(other_network=True), SocketAnswer.OTHER),
    ):
        world.where, world.answer = where, answer
        await world.source.prepare([JOB])
        offer = world.source.offer(JOB)
        assert not offer.can
        assert offer.fix
        said.append(offer.reason)
    assert len(set(said)) == 4


async def test_nobody_has_looked_yet(world: World) -> None:
    assert not world.source.offer(JOB).can
    assert world.source.status()[2] == 0
    await world.source.prepare([JOB])
    assert world.source.offer(JOB).can
    assert world.source.status()[2] == 1


async def test_iterations_go_to_the_next_source(world: World, tmp_path: Path) -> None:
    async with rig(tmp_path, world.source).running() as manager:
        (plan,) = await manager.planner.estimate(ALICE, Request(Selector(pids=(100,)), Options(iterations=3)))
    assert plan.choice.source is not None
    assert plan.choice.source.name == "pyspy"


class Broken(FakeSource):
    """Cannot look."""

    async def prepare(self, processes: Sequence[Process]) -> None:
        raise OSError("no")


async def test_a_source_that_cannot_look_stops_nobody(world: World, tmp_path: Path) -> None:
    async with rig(tmp_path, Broken("kineto"), world.source).running() as manager:
        (plan,) = await manager.planner.estimate(ALICE, request(100, source="jax"))
    assert plan.choice.source is world.source


async def test_closing_ends_a_look(world: World) -> None:
    world.gate.clear()
    looking = asyncio.create_task(world.source.prepare([JOB]))
    async with asyncio.timeout(LONG):
        await world.asked.wait()
    await world.source.close()
    with pytest.raises(asyncio.CancelledError):
        await looking


async def test_a_list_does_not_wait_for_silent_ports_without_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.sources.jax.source.JAX_LOOK_SECONDS", 0.0)
    world.gate.clear()
    async with asyncio.timeout(LONG):
        await world.source.prepare([JOB])
        assert not world.source.offer(JOB).can
        await world.asked.wait()
        world.gate.set()  # the look has gone on
        monkeypatch.setattr("profd.sources.jax.source.JAX_LOOK_SECONDS", LONG)
        await world.source.prepare([JOB])
    assert world.source.offer(JOB).can
    assert world.looked == [100]


async def test_a_port_says_which_of_several_servers(world: World, tmp_path: Path) -> None:
    world.where = Listening(tuple(ListeningPort(n, f"ipv4:127.0.0.1:{n}", frozenset((n,))) for n in (9, 11)))
    await world.source.prepare([JOB])
    assert world.source.plan(JOB, Options(duration_ns=10**9, port=11)).serves
    refused = world.source.plan(JOB, Options(duration_ns=10**9, port=12))
    assert (refused.serves, refused.refusal_code) == (False, Reason.NO_SOURCE)
    assert refused.refusal == "no profiler server of the process answers at port 12; one does at 9, 11"
    session = Session("c1", tmp_path, asyncio.Event(), lambda state, doing: None)
    gone = await world.source.record(JOB, Options(duration_ns=10**9, port=12), session)
    assert (gone.state, gone.reason) == (State.REFUSED, Reason.NO_SOURCE)
