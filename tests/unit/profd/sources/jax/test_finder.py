"""Each listening socket is asked once, by one question, in bounded time."""

from __future__ import annotations

import asyncio

import pytest
from profd.limits import JAX_PORTS_MAX, JAX_PROBES_AT_ONCE_PER_UID
from profd.sources.jax import finder as finder_module
from profd.sources.jax.finder import ASK_AGAIN_SECONDS, Finder, SocketAnswer
from profd.sources.jax.listeners import Listening, ListeningPort

from tests.support.captures import LONG, process
from tests.support.profiler_server import FakeProfiler, answering, serving, whole
from tests.support.waiting import eventually

JOB = process(100, xla=True)


def at(port: int, *sockets: int) -> ListeningPort:
    return ListeningPort(port, f"ipv4:127.0.0.1:{port}", frozenset(sockets or (port,)))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder_module, "PROBE_SECONDS", LONG)


class World:
    """Where the process listens and what lives there."""

    def __init__(self, **answers: SocketAnswer) -> None:
        self.listening = Listening()
        self.answers = answers
        self.asked: list[str] = []
        self.now = 0.0
        self.gate = asyncio.Event()
        self.gate.set()
        self.finder = Finder(self.probe, lambda _: self.listening, lambda: self.now)

    async def probe(self, address: str) -> SocketAnswer:
        port = address.rpartition(":")[2]
        self.asked.append(port)
        await self.gate.wait()
        return self.answers[f"p{port}"]


async def test_sockets_are_asked_once_and_new_ones_too() -> None:
    world = World(p1=SocketAnswer.OTHER, p2=SocketAnswer.PROFILER)
    assert world.finder.known(JOB.id) is None
    world.listening = Listening((at(1),))
    assert (await world.finder.find(JOB)).server is None
    world.listening = Listening((at(1), at(2)))
    found = await world.finder.find(JOB)
    assert found.server == at(2)
    assert world.finder.known(JOB.id) == found
    assert await world.finder.find(JOB) == found
    assert world.asked == ["1", "2"]
    assert world.finder.servers() == 1
    # Another socket at the same port may be another server.
    world.listening = Listening((at(2, 77),))
    await world.finder.find(JOB)
    assert world.asked == ["1", "2", "2"]


async def test_a_server_that_has_stopped_is_forgotten() -> None:
    world = World(p2=SocketAnswer.PROFILER)
    world.listening = Listening((at(2),))
    assert (await world.finder.find(JOB)).server
    world.listening = Listening()
    assert (await world.finder.find(JOB)).server is None


async def test_silence_is_told_and_asked_again_later() -> None:
    world = World(p1=SocketAnswer.SILENT)
    world.listening = Listening((at(1),))
    assert (await world.finder.find(JOB)).silent == (1,)
    await world.finder.find(JOB)
    assert world.asked == ["1"]
    world.now += ASK_AGAIN_SECONDS + 1
    world.answers["p1"] = SocketAnswer.PROFILER
    assert (await world.finder.find(JOB)).server == at(1)


async def test_two_that_ask_at_once_get_one_answer() -> None:
    world = World(p1=SocketAnswer.PROFILER)
    world.listening = Listening((at(1),))
    world.gate.clear()
    listing = asyncio.create_task(world.finder.find(JOB))
    starting = asyncio.create_task(world.finder.find(JOB))
    async with asyncio.timeout(LONG):
        while not world.asked:
            await asyncio.sleep(0)
    # One that gives up takes nothing from the other.
    listing.cancel()
    world.gate.set()
    assert (await starting).server == at(1)
    assert world.asked == ["1"]


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder_module, "_HISTORY", 2)
    world = World()
    for pid in (1, 2, 3):
        await world.finder.find(process(pid, xla=True))
    assert [world.finder.known(process(pid).id) is None for pid in (1, 2, 3)] == [True, False, False]


async def real(port: int) -> SocketAnswer:
    return await finder_module._probe(f"ipv4:127.0.0.1:{port}")


async def test_a_profiler_server_on_cpu_or_gpu_and_on_tpu() -> None:
    for tpu in (False, True):
        fake = FakeProfiler(whole, tpu=tpu)
        with serving(fake) as port:
            assert await real(port) is SocketAnswer.PROFILER
        assert (fake.asked, fake.requests) == (1, [])


async def test_another_grpc_server() -> None:
    with serving(None) as port:
        assert await real(port) is SocketAnswer.OTHER


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 4096, b""])
async def test_a_port_that_speaks_something_else(answer: bytes) -> None:
    with answering(answer) as port:
        assert await real(port) is SocketAnswer.OTHER


async def test_a_port_that_nobody_holds_any_more() -> None:
    with answering(b"") as port:
        pass
    assert await real(port) is SocketAnswer.OTHER


async def test_a_server_that_accepts_and_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finder_module, "PROBE_SECONDS", 0.2)
    with answering(None) as port:
        assert await real(port) is SocketAnswer.SILENT


async def test_silent_ports_of_one_user_keep_no_other_waiting() -> None:
    """GIVEN a user's processes with ports that never answer WHEN another's is looked at THEN its is asked."""
    world = World(p1=SocketAnswer.PROFILER)
    silent = Listening(tuple(at(port) for port in range(1000, 1000 + JAX_PORTS_MAX)))
    theirs = [process(pid, uid=1001, xla=True) for pid in range(200, 220)]
    asked: list[str] = []

    async def probe(address: str) -> SocketAnswer:
        if address.endswith(":1"):
            return await world.probe(address)
        asked.append(address)
        await asyncio.Event().wait()
        return SocketAnswer.SILENT

    finder = Finder(probe, lambda of: Listening((at(1),)) if of is JOB else silent)
    looks = [asyncio.create_task(finder.find(one)) for one in theirs]
    await eventually(lambda: len(asked) >= JAX_PROBES_AT_ONCE_PER_UID)
    try:
        async with asyncio.timeout(LONG):
            assert (await finder.find(JOB)).server == at(1)
        assert len(asked) == JAX_PROBES_AT_ONCE_PER_UID
    finally:
        await finder.close()
        await asyncio.gather(*looks, return_exceptions=True)
