"""Agents that arm, record, stop and come back armed, over real sockets."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable

import pytest
from profd.attached.agents.agent import Agent, NotArmed
from profd.attached.agents.protocol import PacketKind

from tests.support.agent_server import ME, ORDER, Served
from tests.support.fake_agent import LONG, FakeAgent, MiB, arm_agent, memfd
from tests.support.waiting import eventually


async def test_it_arms_counts_stops_and_is_idle_again(served: Served) -> None:
    fake, agent = await served.attached()
    arming = asyncio.create_task(arm_agent(agent, ORDER, LONG))
    packet = await fake.expect(PacketKind.ARM)
    assert packet.epoch == 7
    assert packet.fields == {
        "arena": str(MiB),
        "strings": str(MiB // 3),
        "options": "ranges,torch:auto",
        "window": "10",
        "iterations": "0",
        "max_overhead": "0.020000",
    }
    fd = memfd()
    fake.send(PacketKind.ARMED, 7, fd, first=123, not_honoured="flops: no; memory: neither")
    armed, arm = await arming
    assert (armed.first_ns, armed.not_honoured) == (123, ("flops: no", "memory: neither"))
    assert os.fstat(armed.fd).st_ino == os.fstat(fd).st_ino
    assert fcntl.fcntl(armed.fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    os.close(armed.fd)
    os.close(fd)

    fake.send(PacketKind.STATUS, 6, events=99)  # of another epoch
    fake.send(PacketKind.STATUS, 7, events=5, steps=2)
    await eventually(lambda: arm.status.events == 5)
    agent.limit("c_calls")
    assert (await fake.expect(PacketKind.LIMIT)).fields == {"drop": "c_calls"}
    agent.stop()
    await fake.expect(PacketKind.STOP)
    fake.send(PacketKind.STOPPED, 7, reason="stop", last=456, events=6)
    await eventually(lambda: arm.stopped is not None)
    assert arm.stopped is not None
    assert (arm.stopped.reason, arm.stopped.last_ns, arm.status.events) == ("stop", 456, 6)
    fake.send(PacketKind.STATUS, 7, step_ns_after=12)
    await eventually(lambda: arm.status.step_ns_after == 12)
    assert arm.status.events == 6  # what STOPPED said stays
    agent.release()
    assert (await fake.expect(PacketKind.RELEASE)).epoch == 7
    assert not agent.armed
    fake.send(PacketKind.STATUS, 7, step_ns_after=13)  # there is more to tell of the steps after it
    fake.send(PacketKind.STATUS, 7, after="over")
    await eventually(lambda: arm.status.after_over)
    assert (arm.status.step_ns_after, arm.status.events) == (13, 6)
    fake.close()


async def test_one_that_cannot_arm_says_why_and_is_idle(served: Served) -> None:
    fake, agent = await served.attached()
    arming = asyncio.create_task(arm_agent(agent, ORDER, LONG))
    await fake.expect(PacketKind.ARM)
    fake.send(PacketKind.FAILED, 7, why="no memory")
    with pytest.raises(NotArmed, match="no memory"):
        await arming
    assert not agent.armed
    fake.close()


async def test_one_that_says_nothing_is_told_to_stop_whenever_it_wakes(served: Served) -> None:
    fake, agent = await served.attached()
    with pytest.raises(NotArmed, match="within") as caught:
        await arm_agent(agent, ORDER, 0.01)
    assert caught.value.silent
    for kind in (PacketKind.ARM, PacketKind.STOP, PacketKind.RELEASE):
        assert (await fake.expect(kind)).epoch == 7
    fd = memfd()
    fake.send(PacketKind.ARMED, 7, fd, first=1)  # too late: its descriptor is closed
    os.close(fd)
    fake.send(PacketKind.CHANGED, framework="torch 1")
    await eventually(lambda: agent.hello.framework == "torch 1")
    fake.close()


async def test_a_capture_that_is_cancelled_while_it_arms_leaves_nothing_behind(served: Served) -> None:
    fake, agent = await served.attached()
    arming = asyncio.create_task(arm_agent(agent, ORDER, LONG))
    await fake.expect(PacketKind.ARM)
    arming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await arming
    await fake.expect(PacketKind.STOP)
    await fake.expect(PacketKind.RELEASE)
    assert not agent.armed
    fake.close()


async def test_one_that_goes_away_while_it_arms(served: Served) -> None:
    fake, agent = await served.attached()
    arming = asyncio.create_task(arm_agent(agent, ORDER, LONG))
    await fake.expect(PacketKind.ARM)
    fake.close()
    with pytest.raises(NotArmed) as caught:
        await arming
    assert caught.value.gone
    assert served.registry.get(ME) is None


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: memfd(MiB, 0), id="not sealed"),
        pytest.param(lambda: memfd(2 * MiB), id="another size"),
        pytest.param(lambda: os.open("/dev/zero", os.O_RDWR), id="a device"),
        pytest.param(lambda: os.open("/tmp", os.O_RDONLY), id="a directory"),
    ],
)
async def test_a_wrong_descriptor_ends_the_agent(served: Served, make: Callable[[], int]) -> None:
    fake, agent = await served.attached()
    arming = asyncio.create_task(arm_agent(agent, ORDER, LONG))
    await fake.expect(PacketKind.ARM)
    fd = make()
    fake.send(PacketKind.ARMED, 7, fd, first=1)
    os.close(fd)
    with pytest.raises(NotArmed):
        await arming
    assert await fake.cut_off()
    assert served.registry.counts["hostile"] == 1
    fake.close()


async def test_armed_without_a_descriptor_ends_the_agent(served: Served) -> None:
    fake, agent = await served.attached()
    arming = asyncio.create_task(arm_agent(agent, ORDER, LONG))
    await fake.expect(PacketKind.ARM)
    fake.send(PacketKind.ARMED, 7, first=1)
    with pytest.raises(NotArmed):
        await arming
    assert await fake.cut_off()
    fake.close()


async def test_a_second_agent_does_not_displace_one_that_records(served: Served) -> None:
    first, agent = await served.attached()
    arming = asyncio.create_task(arm_agent(agent, ORDER, LONG))
    await first.expect(PacketKind.ARM)
    second = FakeAgent(served.path)
    second.hello(incarnation="bb")
    assert "recorded" in (await second.expect(PacketKind.REFUSED)).fields["why"]
    second.close()
    first.close()
    with pytest.raises(NotArmed):
        await arming


async def test_one_that_comes_back_armed_is_handed_over_with_its_arena(served: Served) -> None:
    taken: list[tuple[Agent, int, int]] = []
    served.registry.on_orphan = lambda agent, epoch, fd: taken.append((agent, epoch, fd))
    fake = FakeAgent(served.path)
    fd = memfd()
    fake.hello(fd, armed="2a")
    await fake.expect(PacketKind.WELCOME)
    [(agent, epoch, received)] = taken
    assert (agent.process, epoch) == (ME, 42)
    assert os.fstat(received).st_ino == os.fstat(fd).st_ino
    os.close(received)
    os.close(fd)
    fake.close()


async def test_one_that_comes_back_armed_to_nobody_is_told_to_stop(served: Served) -> None:
    fake = FakeAgent(served.path)
    fd = memfd()
    fake.hello(fd, armed="2a")
    os.close(fd)
    await fake.expect(PacketKind.WELCOME)
    assert (await fake.expect(PacketKind.STOP)).epoch == 42
    assert (await fake.expect(PacketKind.RELEASE)).epoch == 42
    fake.close()


async def test_one_that_comes_back_armed_with_a_wrong_descriptor_is_cut_off(served: Served) -> None:
    fake = FakeAgent(served.path)
    fd = memfd(seals=0)
    fake.hello(fd, armed="2a")
    os.close(fd)
    assert await fake.cut_off()
    assert served.registry.get(ME) is None
    fake.close()
