"""Agents that come, go and lie, over real sockets."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from profd.attached.agents import registry as registry_module
from profd.attached.agents.protocol import PacketKind, encode
from profd.capture.planner import Sighting
from profd.kernel.peer import Peer
from profd.rpc.translate import sighting_message
from profd.targets.table import ProcessTable

from tests.support.agent_server import ME, Served, serving
from tests.support.fake_agent import FakeAgent, memfd
from tests.support.python_jobs import seen
from tests.support.waiting import eventually


async def test_who_it_is_is_the_kernels_word(served: Served) -> None:
    fake, agent = await served.attached(pid=1, start=5, rank=3, job="j1", framework="torch 2.13.0")
    assert agent.process == ME
    assert agent.uid == os.getuid()
    assert agent.hello.framework == "torch 2.13.0"
    process = ProcessTable(labelled=served.registry.labelled).get(os.getpid())
    assert process is not None
    assert (process.rank, process.job) == (3, "j1")
    fake.close()
    await eventually(lambda: served.registry.get(ME) is None)


@pytest.mark.parametrize(
    ("told", "shown"), [("", "torch (importing)"), ("torch 2.13.0", "torch")], ids=["begun", "over"]
)
async def test_a_framework_whose_import_is_not_over(told: str, shown: str, served: Served) -> None:
    """Its libraries are mapped from the begin of the import on; the agent tells the framework at the end."""
    fake, _ = await served.attached(framework=told)
    process = seen(os.getpid())
    named = served.registry.labelled(replace(process, framework="torch"))
    assert sighting_message(Sighting(named, [])).framework == shown
    fake.close()
    await eventually(lambda: served.registry.get(ME) is None)


def test_a_process_that_has_ended_is_not_taken_for_the_next_of_its_pid() -> None:
    """It could have the container of that one."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pidfd = os.pidfd_open(ended.pid)
    try:
        with pytest.raises(OSError, match="it has ended"):
            registry_module._identify(Peer(os.getpid(), os.getuid(), os.getgid()), pidfd)
    finally:
        os.close(pidfd)


async def test_more_descriptors_than_one_are_hostile(served: Served) -> None:
    fake = FakeAgent(served.path)
    fds = [memfd() for _ in range(3)]
    fake.hello(*fds)
    for fd in fds:
        os.close(fd)
    assert await fake.cut_off()
    fake.close()


async def test_descriptors_that_nobody_asked_for_are_closed(served: Served) -> None:
    fake = FakeAgent(served.path)
    fd = memfd()
    fake.hello(fd)
    await fake.expect(PacketKind.WELCOME)
    fake.send(PacketKind.STATUS, 3, fd, events=1)
    fake.send(PacketKind.CHANGED, 0, fd, framework="x 1")
    os.close(fd)
    agent = served.registry.get(ME)
    await eventually(lambda: agent is not None and agent.hello.framework == "x 1")
    fake.close()


@pytest.mark.parametrize(
    "raw", [b"hello", b"x" * 40_000, encode(PacketKind.STATUS, 1), encode(PacketKind.HELLO, versions="1-1")]
)
async def test_whoever_begins_with_no_hello_is_cut_off(served: Served, raw: bytes) -> None:
    fake = FakeAgent(served.path)
    fake.send_raw(raw)
    assert await fake.cut_off()
    await eventually(lambda: served.registry.counts["hostile"] == 1)
    fake.close()


async def test_another_version_is_refused_with_what_to_do(served: Served) -> None:
    fake = FakeAgent(served.path)
    fake.hello(versions="2-3")
    assert "upgrade" in (await fake.expect(PacketKind.REFUSED)).fields["why"]
    assert await fake.cut_off()
    fake.close()


async def test_a_user_daemon_serves_its_own_uid_only() -> None:
    async with serving(only_uid=os.getuid() + 1) as served:
        fake = FakeAgent(served.path)
        assert "--user" in (await fake.expect(PacketKind.REFUSED)).fields["why"]
        assert await fake.cut_off()
        fake.close()


async def test_an_idle_agent_that_comes_again_takes_its_own_place(served: Served) -> None:
    first, _ = await served.attached()
    second, agent = await served.attached(incarnation="bb")
    assert await first.cut_off()
    assert agent.hello.incarnation == 0xBB
    first.close()
    second.close()


KEEPS_THE_SOCKET_OPEN = """
import os, socket, sys, time
sys.path.insert(0, os.getcwd())
from pathlib import Path
from tests.support.fake_agent import FakeAgent
fake = FakeAgent(Path(sys.argv[1]))
fake.hello()
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print("forked", flush=True)
time.sleep(3600)
"""


async def test_the_end_of_a_process_is_seen_although_a_child_keeps_its_socket(served: Served) -> None:
    job = subprocess.Popen(
        [sys.executable, "-c", KEEPS_THE_SOCKET_OPEN, str(served.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert job.stdout is not None
    await asyncio.to_thread(job.stdout.readline)
    await eventually(lambda: len(served.registry.all()) == 1)
    job.kill()
    await eventually(lambda: not served.registry.all())
    await asyncio.to_thread(job.communicate)
