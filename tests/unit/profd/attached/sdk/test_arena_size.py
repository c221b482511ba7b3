"""How large an arena a process can bear, and what is said where it can bear none."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from profd.attached.agents.protocol import PacketKind
from profd.attached.sdk.arena_size import ArenaSizes, Size
from profd.limits import MiB
from profd.model.capture import Options, Reason, State
from profd.targets.memory import Bound, MemoryLimits, Room

from tests.support.sdk_rig import Rig


class FixedMemory(MemoryLimits):
    """Rooms a test names."""

    def __init__(self, *rooms: Room) -> None:
        super().__init__(Path("/"))
        self.now = list(rooms)

    def read(self, pid: int) -> list[Room]:
        return self.now


def cgroup(free: float, name: str = "/pods/one", limit: int = 50) -> Room:
    return Room(Bound.CGROUP, round(free * MiB), limit * MiB, round((limit - free) * MiB), name)


HOST = Room(Bound.HOST, 8 << 30, name="host")


@pytest.mark.parametrize(
    ("rooms", "size"),
    [
        ((), 64),
        ((HOST,), 64),
        ((HOST, cgroup(256)), 64),
        ((HOST, cgroup(255)), 63),
        ((HOST, cgroup(26)), 6),
        ((HOST, cgroup(26), cgroup(17, "/pods")), 4),
        ((HOST, cgroup(8)), 2),
        ((HOST, Room(Bound.ADDRESS_SPACE, 40 * MiB)), 20),
        ((HOST, Room(Bound.FILE, 10 * MiB)), 10),
        ((replace(HOST, free=100 * MiB),), 25),
    ],
)
def test_a_share_of_the_tightest(rooms: tuple[Room, ...], size: int) -> None:
    assert ArenaSizes(FixedMemory(*rooms)).find(7, 64 * MiB) == Size(size * MiB)


def test_one_user_is_promised_a_part_of_the_host_and_others_theirs() -> None:
    sizes = ArenaSizes(FixedMemory(replace(HOST, free=1024 * MiB)))
    with contextlib.ExitStack() as held:
        promised = 0
        while (size := sizes.find(7, 64 * MiB, uid=4242)).bytes:
            held.enter_context(sizes.holding(7, size.bytes, 4242))
            promised += size.bytes
        assert promised == 256 * MiB
        assert "256.0 MiB of this host's memory are promised to other recordings of your processes" in size.refusal
        assert sizes.find(7, 64 * MiB, uid=4242, force=True).bytes == MiB
        assert sizes.find(8, 64 * MiB, uid=4243) == Size(64 * MiB)
        # AND root finds some, however many users there are
        for uid in range(5000, 5010):
            while (size := sizes.find(9, 64 * MiB, uid=uid)).bytes:
                held.enter_context(sizes.holding(9, size.bytes, uid))
        assert sizes.find(10, 64 * MiB, uid=0).bytes >= 16 * MiB
    assert sizes.find(7, 64 * MiB, uid=4242) == Size(64 * MiB)


def test_what_others_were_promised_is_not_free() -> None:
    sizes = ArenaSizes(FixedMemory(HOST, cgroup(64)))
    with sizes.holding(7, 16 * MiB):
        assert sizes.find(8, 64 * MiB).bytes == 12 * MiB
        with sizes.holding(8, 12 * MiB):
            assert sizes.find(9, 64 * MiB).bytes == 9 * MiB
    assert sizes.find(8, 64 * MiB).bytes == 16 * MiB


@pytest.mark.parametrize(
    ("room", "said"),
    [
        (cgroup(7.9), "its memory cgroup /pods/one has 7.9 MiB left of 50.0 MiB, and recording needs 8.0 MiB of that"),
        (replace(HOST, free=0), "this host has 0.0 MiB of memory left, and recording needs 8.0 MiB"),
        (Room(Bound.ADDRESS_SPACE, MiB, 9 * MiB), "address space (ulimit -v) has 1.0 MiB left of 9.0 MiB"),
        (Room(Bound.FILE, 1 << 19, 1 << 19), "no file, and so no arena, larger than 0.5 MiB (ulimit -f)"),
    ],
)
def test_too_little_is_refused_with_the_numbers_and_what_to_do(room: Room, said: str) -> None:
    sizes = ArenaSizes(FixedMemory(HOST, room))
    refusal = sizes.find(7, 64 * MiB).refusal
    assert said in refusal
    assert "raise the limit, or take samples" in refusal
    forced = sizes.find(7, 64 * MiB, force=True)
    assert (forced.bytes, forced.refusal) == (MiB, "")
    assert said.split(",")[0] in forced.risk


def test_promises_are_named_in_a_refusal() -> None:
    sizes = ArenaSizes(FixedMemory(cgroup(20)))
    with sizes.holding(7, 15 * MiB):
        assert "has 5.0 MiB left of 50.0 MiB (15.0 MiB more are promised" in sizes.find(8, 64 * MiB).refusal


async def test_the_source_asks_for_as_much_as_the_process_can_bear(rig: Rig) -> None:
    memory = FixedMemory(cgroup(12))
    rig.source._parts = replace(rig.source._parts, arena_bytes=64 * MiB, sizes=ArenaSizes(memory))
    fake = await rig.attach()
    assert rig.source.plan(rig.process, Options()).memory_bytes == 3 * MiB
    running = rig.record()
    asked = await fake.expect(PacketKind.ARM)
    assert (int(asked.fields["arena"]), int(asked.fields["strings"])) == (3 * MiB, MiB)
    assert rig.source.plan(rig.process, Options()).memory_bytes == 2 * MiB  # the first has its share
    fake.send(PacketKind.FAILED, asked.epoch, why="no")
    await running
    assert rig.source.plan(rig.process, Options()).memory_bytes == 3 * MiB
    fake.close()


async def test_the_source_refuses_a_process_that_can_bear_none(rig: Rig) -> None:
    rig.source._parts = replace(rig.source._parts, arena_bytes=64 * MiB, sizes=ArenaSizes(FixedMemory(cgroup(3))))
    fake = await rig.attach()
    plan = rig.source.plan(rig.process, Options())
    assert (plan.serves, plan.refusal_code) == (False, Reason.OVER_LIMIT)
    recording = await rig.record()
    assert (recording.state, recording.reason) == (State.REFUSED, Reason.OVER_LIMIT)
    assert "has 3.0 MiB left of 50.0 MiB" in recording.message
    forced = rig.source.plan(rig.process, Options(force=True))
    assert (forced.serves, forced.memory_bytes) == (True, MiB)
    assert any(risk.startswith("force: ") for risk in forced.risks)
    fake.close()
