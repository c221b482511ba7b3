"""What all agents of one user say together: beyond their user's part they wait, and nobody is cut off."""

from __future__ import annotations

import os

import pytest
from profd.attached.agents import registry as registry_module
from profd.attached.agents.allowance import Allowance, Allowances
from profd.attached.agents.protocol import PacketKind
from profd.fairness.shares import Holder
from profd.limits import AGENT_PACKET_UNIT_BYTES, AGENT_UNITS_BURST, RATES_USERS_MAX

from tests.support.agent_server import ME, Served
from tests.support.waiting import eventually

BURST = 8


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_links_of_a_user_who_says_too_much_wait_and_go_on_later(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    mine = Allowance(per_second=1.0, burst=BURST, clock=clock)
    monkeypatch.setattr(Allowances, "of", lambda self, holder: mine)
    fake, agent = await served.attached()  # HELLO is one packet
    for rank in range(3 * BURST):
        fake.send(PacketKind.CHANGED, rank=rank)
    await eventually(lambda: mine.waiting == 1)
    assert agent.hello.rank == BURST - 2
    for bursts in (2, 3):  # each one is spent before the next one comes: more than one cannot be saved up
        clock.now += BURST
        mine.go_on()
        await eventually(lambda: mine.waiting == 1)
        assert agent.hello.rank == bursts * BURST - 2
    clock.now += BURST
    mine.go_on()
    await eventually(lambda: agent.hello.rank == 3 * BURST - 1)
    assert served.registry.get(ME) is agent
    assert mine.waiting == 0
    fake.close()
    await eventually(lambda: served.registry.get(ME) is None)


async def test_one_that_waits_may_be_closed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Allowance(per_second=1.0, burst=1, clock=Clock())
    monkeypatch.setattr(Allowances, "of", lambda self, holder: mine)
    fake, agent = await served.attached()
    await eventually(lambda: mine.waiting == 1)
    agent.close()
    served.registry.forget(agent, "")
    mine.go_on()
    assert await fake.cut_off()
    fake.close()


async def test_large_packets_count_as_several_and_who_waits_has_turns() -> None:
    clock = Clock()
    mine = Allowance(per_second=1.0, burst=BURST, clock=clock)
    mine.spend((BURST - 1) * AGENT_PACKET_UNIT_BYTES)
    assert mine.left()
    mine.spend(1)
    assert not mine.left()
    read: list[str] = []

    def link(name: str) -> None:
        read.append(name)
        mine.spend(1)
        mine.wait(lambda: link(name))

    mine.wait(lambda: link("a"))
    mine.wait(lambda: link("b"))
    clock.now += 3
    mine.go_on()
    assert read == ["a", "b", "a"]
    assert mine._timer is not None
    mine._timer.cancel()


async def test_an_allowance_outlives_the_connections_of_its_user() -> None:
    users = Allowances()
    first = users.of(Holder(1, reserved=False))
    assert first is not None
    assert users.of(Holder(1, reserved=False)) is first
    assert users.of(Holder(0, reserved=True)) is None
    for uid in range(2, RATES_USERS_MAX + 2):
        users.of(Holder(uid, reserved=False))
    assert users.of(Holder(1, reserved=False)) is not first


async def test_every_link_has_the_allowance_of_its_user(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "_holder", lambda uid, _: Holder(uid, reserved=False))
    mine = served.registry._allowances.of(Holder(os.getuid(), reserved=False))
    assert mine is not None
    mine._per_second = 1e-9  # what is spent stays spent
    fake, _ = await served.attached()
    assert mine._units < mine._burst <= AGENT_UNITS_BURST
    fake.close()
    await eventually(lambda: served.registry.get(ME) is None)
