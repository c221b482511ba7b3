"""Agents that flood, that are silent, and that are many, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from profd.attached.agents import link as link_module
from profd.attached.agents import registry as registry_module
from profd.attached.agents.protocol import PacketKind
from profd.attached.agents.registry import ATTACHED
from profd.limits import (
    AGENT_CONNECTIONS_BURST,
    AGENT_LINES_BURST,
    AGENT_PACKETS_PER_SECOND_MAX,
)

from tests.support.agent_server import ME, Served, serving
from tests.support.fake_agent import FakeAgent
from tests.support.people import CONNECT_AND_GO, being
from tests.support.waiting import eventually


async def test_whoever_says_nothing_is_cut_off(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "AGENT_HELLO_SECONDS", 0.01)
    fake = FakeAgent(served.path)
    assert await fake.cut_off()
    fake.close()


async def test_a_flood_is_cut_off(served: Served) -> None:
    fake, _ = await served.attached()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(4 * AGENT_PACKETS_PER_SECOND_MAX):
            fake.send(PacketKind.CHANGED, rank=1)
            await asyncio.sleep(0)
    assert await fake.cut_off()
    assert served.registry.get(ME) is None
    fake.close()


async def test_what_was_said_while_nobody_read_is_no_flood(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [time.monotonic()]
    fake, agent = await served.attached()
    monkeypatch.setattr(link_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    now[0] += 4.0  # that the daemon stood still
    for rank in range(4 * AGENT_PACKETS_PER_SECOND_MAX):
        fake.send(PacketKind.CHANGED, rank=rank)
        await eventually(lambda rank=rank: agent.hello.rank == rank)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(2 * AGENT_PACKETS_PER_SECOND_MAX):
            fake.send(PacketKind.CHANGED, rank=1)
            await asyncio.sleep(0)
    assert await fake.cut_off()
    fake.close()


async def test_who_is_cut_off_again_and_again_does_not_fill_the_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(AGENT_LINES_BURST + 5):
        fake = FakeAgent(served.path)
        fake.send_raw(b"garbage")
        assert await fake.cut_off()
        fake.close()
    assert served.registry.counts["hostile"] == AGENT_LINES_BURST + 5
    assert len([line for line in caplog.records if "cut off" in line.message]) == AGENT_LINES_BURST


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
async def test_who_connects_and_goes_is_looked_at_seldom(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    served.path.parent.chmod(0o755)
    served.path.chmod(0o666)
    command = [sys.executable, "-c", CONNECT_AND_GO, str(served.path), str(3 * AGENT_CONNECTIONS_BURST)]
    flood = await asyncio.create_subprocess_exec(*command)
    assert await flood.wait() == 0
    fake, _ = await served.attached()
    fake.close()
    assert served.registry.counts["refused"] > 0
    assert caplog.text.count("connect too often") == 1


@pytest.fixture
async def crowded() -> AsyncIterator[Served]:
    """Few may attach: two of one user, four of all, two of root's."""
    async with serving(share=replace(ATTACHED, each=2, host=4, reserved=2)) as found:
        found.path.parent.chmod(0o755)
        found.path.chmod(0o666)
        yield found


async def kept(served: Served, uid: int | None = None) -> FakeAgent:
    """One that is let in, and says nothing."""
    before = len(served.registry._greetings)
    with being(uid):
        fake = FakeAgent(served.path)
    await eventually(lambda: len(served.registry._greetings) > before)
    return fake


async def why_refused(served: Served, uid: int | None = None) -> str:
    with being(uid):
        fake = FakeAgent(served.path)
    why: str = (await fake.expect(PacketKind.REFUSED)).fields["why"]
    fake.close()
    return why


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
async def test_where_all_places_are_taken_who_has_fewer_than_the_others_is_let_in(crowded: Served) -> None:
    alice, bob, carol = 5321, 5322, 5323
    fakes = [await kept(crowded, uid) for uid in (alice, alice, bob, bob)]
    assert "of one user" in await why_refused(crowded, alice)
    # WHEN others come, and root THEN they are let in, as far as their part goes
    fakes += [await kept(crowded, carol), await kept(crowded), await kept(crowded)]
    assert "of this host" in await why_refused(crowded, carol)
    assert "kept for root" in await why_refused(crowded)
    for fake in fakes:
        fake.close()


async def test_there_is_a_most_for_a_user_and_places_come_back(crowded: Served) -> None:
    first, second = await kept(crowded), await kept(crowded)
    assert "2 of 2 attached processes at once" in await why_refused(crowded)
    first.close()
    await eventually(lambda: len(crowded.registry._greetings) == 1)
    # The place of one that says who it is, and goes, is free again, too.
    for _ in range(2):
        fake, _ = await crowded.attached()
        fake.close()
        await eventually(lambda: crowded.registry.get(ME) is None)
    second.close()


async def test_without_descriptors_connections_wait_and_nobody_is_busy(served: Served) -> None:
    waits = object.__new__(FakeAgent)
    waits.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as held:
        stat = held.enter_context(open(task_named("profd-reception") / "stat", "rb", buffering=0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with contextlib.suppress(OSError):
            while True:
                held.callback(os.close, os.dup(0))
        waits.socket.connect(str(served.path))
        waits.socket.setblocking(False)
        waits.hello()
        await eventually(
            lambda: all(os.pread(stat.fileno(), 256, 0).rpartition(b")")[2][1:2] == b"S" for _ in range(20))
        )
    await waits.expect(PacketKind.WELCOME)
    waits.close()


def task_named(name: str) -> Path:
    """A thread of ours."""
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread of an earlier test, which ended
            if (task / "comm").read_text() == f"{name}\n":
                return task
    raise AssertionError(f"no thread is called {name}")
