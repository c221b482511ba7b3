"""From the request to the first event: agents that cannot, do not, or are let go of; their leases and directories."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from profd.attached.agents.protocol import PacketKind
from profd.attached.sdk import orphans, planning
from profd.errors import Exhausted
from profd.gpu.holders import Holder, HolderKind
from profd.model.capture import Reason, State
from profd.targets import first_looks, identity

from tests.support.fake_agent import MiB, memfd
from tests.support.sdk_rig import ME, Rig
from tests.support.waiting import PATIENCE_SECONDS, Standstill, eventually


async def test_an_agent_that_cannot_arm_is_a_refusal(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record()
    epoch = (await fake.expect(PacketKind.ARM)).epoch
    fake.send(PacketKind.FAILED, epoch, why="no memory for the arena")
    done = await recording
    assert done.state is State.REFUSED
    assert "no memory for the arena" in done.message
    assert not done.files
    assert rig.intakes[0].closed
    fake.close()


async def test_a_process_that_ends_while_it_is_armed(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record()
    await fake.expect(PacketKind.ARM)
    fake.close()
    done = await recording
    assert (done.state, done.reason) == (State.FAILED, Reason.TARGET_ENDED)


async def test_an_arena_that_is_refused_is_told_as_what_it_is(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record()
    epoch = (await fake.expect(PacketKind.ARM)).epoch
    fd = memfd(MiB, seals=0)
    fake.send(PacketKind.ARMED, epoch, fd, first=1)
    os.close(fd)
    done = await recording
    assert (done.state, done.reason) == (State.REFUSED, Reason.SOURCE_FAILED)
    assert "the arena is not sealed" in done.message
    fake.close()


async def test_a_process_that_is_silent_while_it_is_armed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "ARM_SECONDS", 0.02)
    fake = await rig.attach()
    done = await rig.record()
    assert (done.state, done.reason) == (State.FAILED, Reason.TARGET_SILENT)
    assert "kill -CONT" in done.message
    fake.close()


async def test_a_full_disk_leaves_an_idle_agent(rig: Rig) -> None:
    rig.refuse = Exhausted("no space")
    fake = await rig.attach()
    done = await rig.record()
    assert (done.state, done.reason) == (State.FAILED, Reason.DISK_FULL)
    epoch = await rig.armed(fake)  # it was told before the disk was asked, and may answer late
    assert [(await fake.expect(kind)).epoch for kind in (PacketKind.STOP, PacketKind.RELEASE)] == [epoch, epoch]
    fake.send(PacketKind.CHANGED, job="j")
    await eventually(lambda: rig.registry.all() and next(iter(rig.registry.all())).hello.job == "j")
    fake.close()


@pytest.mark.parametrize("what", ["_look", "_host"])  # its identity; limits of memory
async def test_the_loop_is_free_while_many_are_looked_at(rig: Rig, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    # GIVEN one of many processes of a capture, whose files in /proc take their time
    reader: object = identity if what == "_look" else rig.source._parts.sizes.memory
    monkeypatch.setattr(reader, what, look := Standstill(getattr(reader, what)))
    fake = await rig.attach()
    recording = rig.record(together=first_looks.FEW + 1)
    # WHEN it is looked at THEN the loop goes on, and it is armed when that has been seen
    await eventually(look.reached.is_set)
    look.go_on()
    epoch = await rig.armed(fake)
    await eventually(lambda: bool(rig.drains))
    fake.send(PacketKind.STOPPED, epoch, reason="window")
    assert (await recording).state is State.DRAINING
    fake.close()


async def test_one_that_is_stopped_while_it_is_looked_at_again_is_not_armed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = Standstill(identity._look, skip=1)  # behind the look by which it is accepted
    monkeypatch.setattr(identity, "_look", again)
    fake = await rig.attach()
    recording = rig.record(together=first_looks.FEW + 1)
    await eventually(again.reached.is_set)
    rig.stop.set()
    again.go_on()
    assert (await recording).state is State.CANCELLED
    with pytest.raises(BlockingIOError):
        fake.socket.recv(1)
    fake.close()


async def test_it_is_armed_before_its_directory_is_made(rig: Rig) -> None:
    made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    fake = await rig.attach()
    recording = rig.record(made=made)
    epoch = await rig.armed(fake)
    assert not rig.intakes
    made.set_result(None)
    await eventually(lambda: bool(rig.drains))
    fake.send(PacketKind.STOPPED, epoch, reason="window")
    assert (await recording).state is State.DRAINING
    fake.close()


async def test_no_directory_ends_what_was_armed(rig: Rig) -> None:
    made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    fake = await rig.attach()
    recording = rig.record(made=made)
    epoch = await rig.armed(fake)
    made.set_exception(Exhausted("no space"))
    assert (await recording).reason is Reason.DISK_FULL
    assert [(await fake.expect(kind)).epoch for kind in (PacketKind.STOP, PacketKind.RELEASE)] == [epoch, epoch]
    assert not rig.intakes
    fake.close()


async def test_a_slow_disk_holds_neither_the_loop_nor_a_process_that_is_let_go(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = threading.Event(), threading.Event()
    note = orphans.note

    def slow(file: Path, incarnation: int, epoch: int) -> None:
        asked.set()
        assert answers.wait(PATIENCE_SECONDS)
        note(file, incarnation, epoch)

    monkeypatch.setattr(orphans, "note", slow)
    fake = await rig.attach()
    recording = rig.record()
    epoch = await rig.armed(fake)
    await eventually(asked.is_set)
    # WHEN the recording is given up while the disk has it
    recording.cancel()
    assert [(await fake.expect(kind)).epoch for kind in (PacketKind.STOP, PacketKind.RELEASE)] == [epoch, epoch]
    assert not recording.done()
    answers.set()
    # THEN nothing of it is left
    with pytest.raises(asyncio.CancelledError):
        await recording
    assert not orphans.find(rig.folder.parent.parent)
    assert rig.intakes[0].closed
    fake.close()


async def test_the_lease_of_a_cuda_process_is_free_when_it_says_that_it_is_disarmed(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record(cuda=True)
    epoch = await rig.armed(fake)
    lease = rig.leases.of(ME)
    assert lease is not None
    assert (lease.epoch, str(lease.holder)) == (epoch, "capture c1")
    await eventually(lambda: bool(rig.drains))
    rig.stop.set()
    await fake.expect(PacketKind.STOP)
    fake.send(PacketKind.STOPPED, epoch, reason="stop")
    assert (await recording).state is State.DRAINING
    offer = rig.source.offer(replace(rig.process, cuda=True))
    assert offer.busy
    assert offer.reason.startswith(f"CUPTI in pid {ME.pid} is held by capture c1, which is over")
    assert rig.source.offer(rig.process).can  # without CUDA there is nothing to hold
    fake.send(PacketKind.DISARMED, epoch)
    await eventually(lambda: rig.leases.of(ME) is None)
    assert rig.source.offer(replace(rig.process, cuda=True)).can
    fake.close()


async def test_the_lease_of_a_process_that_cannot_arm_is_free(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record(cuda=True)
    epoch = (await fake.expect(PacketKind.ARM)).epoch
    fake.send(PacketKind.FAILED, epoch, why="no memory")
    assert (await recording).state is State.REFUSED
    assert rig.leases.of(ME) is None
    fake.close()


async def test_the_lease_of_another_holder_is_named(rig: Rig) -> None:
    fake = await rig.attach()
    with rig.leases.hold(ME, Holder(HolderKind.KINETO, capture="k1")):
        done = await rig.record(cuda=True)
    assert (done.state, done.reason) == (State.BUSY, Reason.CAPTURE_RUNNING)
    assert "is held by capture k1 (kineto)" in done.message
    fake.close()


async def test_stopped_before_the_agreed_start(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record(start_at_ns=2**62)
    await eventually(lambda: bool(rig.said))
    rig.stop.set()
    assert (await recording).state is State.CANCELLED
    assert not rig.intakes
    fake.close()
