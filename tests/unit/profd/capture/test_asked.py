"""Captures that programs ask for: whose they are, who is in them, and programs that ask too much or go away."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from profd.attached.agents.agent import Agent
from profd.attached.agents.registry import AgentRegistry
from profd.capture import asked as module
from profd.capture.asked import AskedByPrograms
from profd.capture.records import CaptureRecord
from profd.fairness.rates import Rate, Rates
from profd.limits import REFUSED_CAPTURES_BURST, STARTS_BURST, WISH_BATCHES_MAX, WISHES_BURST
from profd.model.wish import Wish
from profd.targets import procfs
from profd.targets.process import ProcessId

from tests.support.captures import FakeTable, Rig, ended, process
from tests.support.waiting import eventually

ANN, BOB = 1000, 1001
KEY = "job/0/iterations:5"


class Asker:
    """An attached program, as the daemon sees it."""

    def __init__(self, pid: int, uid: int = ANN) -> None:
        self.process = process(pid, uid=uid).id
        self.uid = uid
        self.answers: dict[int, tuple[str, str]] = {}  # capture and why, by the number of the request

    def tell_granted(self, number: int, *, capture: str = "", why: str = "") -> None:
        assert number not in self.answers, "one answer to each"
        self.answers[number] = capture, why


class Agents:
    """Who is connected now."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.counts: Counter[str] = Counter()
        self.connected: dict[ProcessId, Asker] = {}

    def get(self, process: ProcessId) -> Asker | None:
        return self.connected.get(process)

    def comes(self, pid: int, uid: int = ANN) -> Asker:
        """A program attaches, or comes back."""
        asker = Asker(pid, uid)
        self.rig.table.processes[pid] = process(pid, uid=uid, user=f"u{uid}")
        self.connected[asker.process] = asker
        return asker


class Desk:
    """The part under test over a manager, and what came of requests."""

    def __init__(self, rig: Rig, asked: AskedByPrograms, agents: Agents) -> None:
        self.rig = rig
        self.asked = asked
        self.agents = agents

    def ask(self, asker: Asker, number: int = 1, **said: Any) -> None:
        wish = {"iterations": 5, "number": number, **said}
        self.asked.asked(cast(Agent, asker), Wish(**wish))

    async def answer(self, asker: Asker, number: int = 1) -> tuple[str, str]:
        await eventually(lambda: number in asker.answers)
        return asker.answers[number]

    def captures(self) -> list[CaptureRecord]:
        return [CaptureRecord.from_json(kept) for kept in self.rig.records.kept.values()]

    def pids(self) -> list[set[int]]:
        return [{target.process.pid for target in record.targets} for record in self.captures()]


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, FakeTable())


@contextlib.asynccontextmanager
async def open_desk(rig: Rig, agents: Agents) -> AsyncIterator[Desk]:
    async with rig.running() as manager:
        asked = AskedByPrograms(manager, cast(AgentRegistry, agents), cast(Any, rig.audit))
        yield Desk(rig, asked, agents)
        asked.close()


@pytest.fixture
async def desk(rig: Rig) -> AsyncIterator[Desk]:
    async with open_desk(rig, Agents(rig)) as opened:
        yield opened


async def test_processes_of_one_key_are_one_capture(desk: Desk) -> None:
    first, second = desk.agents.comes(100), desk.agents.comes(101)
    for asker in (first, second):
        desk.ask(asker, key=KEY, local=2)
    assert await desk.answer(first) == await desk.answer(second)
    assert desk.pids() == [{100, 101}]


async def test_equal_keys_of_two_users_do_not_meet(desk: Desk) -> None:
    ann, bob = desk.agents.comes(100), desk.agents.comes(102, BOB)
    for asker in (ann, bob):
        desk.ask(asker, key=KEY, local=2, hosts=2)
    assert (await desk.answer(ann))[0] != (await desk.answer(bob))[0]
    assert sorted((record.owner_uid, *pids) for record, pids in zip(desk.captures(), desk.pids(), strict=True)) == [
        (ANN, 100),
        (BOB, 102),
    ]
    told = {(await desk.answer(asker))[0] for asker in (ann, bob)}  # the name that is the same on all hosts
    assert {record.fleet.id for record in desk.captures() if record.fleet} == told


async def test_a_request_without_a_key_is_of_one_host(desk: Desk) -> None:
    """Its id is one that the host's own commands take."""
    asker = desk.agents.comes(100)
    desk.ask(asker, hosts=2)
    capture, _ = await desk.answer(asker)
    assert [(record.id, record.fleet) for record in desk.captures()] == [(capture, None)]


async def test_a_root_program_is_no_admin(desk: Desk) -> None:
    """It has a user's shares."""
    root = desk.agents.comes(100, 0)
    for number in range(1, WISHES_BURST + 2):
        desk.ask(root, number)
    assert "requests of programs" in root.answers[WISHES_BURST + 1][1]


async def test_programs_of_users_who_may_not_connect_any_more_get_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = {100: (1000, 7), 101: (1000, 8, 9)}
    monkeypatch.setattr(procfs, "groups_of", lambda pid: groups.get(pid, ()))
    outside, member, gone, root = (
        desk.agents.comes(pid, uid) for pid, uid in ((100, ANN), (101, ANN), (102, ANN), (103, 0))
    )
    desk.asked.keep_members(0)
    desk.ask(outside, 3)
    assert "socket_group" in (await desk.answer(outside, 3))[1]
    desk.asked.keep_members(8)
    for asker in (outside, member, gone, root):
        desk.ask(asker)
    for asker in (outside, gone):
        assert "socket_group" in (await desk.answer(asker))[1]
    for asker in (member, root):
        assert (await desk.answer(asker))[0]
    desk.asked.keep_members(None)
    desk.ask(outside, 2)
    assert (await desk.answer(outside, 2))[0]


async def test_a_flood_of_one_user_is_cut_and_counted_and_anothers_request_is_answered(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk.asked, "_rates", Rates(module._RATE, lambda: 0.0))  # no new allowance meanwhile
    flood, bob = desk.agents.comes(100), desk.agents.comes(102, BOB)
    for number in range(1, WISHES_BURST + 51):
        desk.ask(flood, number)
    desk.ask(bob)
    assert (await desk.answer(bob))[0]
    await eventually(lambda: len(flood.answers) == WISHES_BURST + 50)
    refused = [why for capture, why in flood.answers.values() if not capture]
    assert desk.agents.counts["requests_refused"] == len(refused) >= WISHES_BURST + 50 - STARTS_BURST
    assert sum("requests of programs a second" in why for why in refused) == 50


async def test_refusals_that_are_kept_to_be_seen_push_out_no_captures_with_traces(desk: Desk) -> None:
    desk.rig.switch.set(False, "maintenance")
    asker = desk.agents.comes(100)
    for number in range(1, 11):
        desk.ask(asker, number)
        assert "maintenance" in (await desk.answer(asker, number))[1]
    assert [record.targets[0].message for record in desk.captures()] == [asker.answers[1][1]] * REFUSED_CAPTURES_BURST
    assert desk.agents.counts["requests_refused"] == 10


async def test_one_that_ends_or_calls_exec_while_others_are_waited_for_is_left_out(desk: Desk) -> None:
    gone, execs, stays = (desk.agents.comes(pid) for pid in (100, 101, 103))
    for asker in (gone, execs):
        desk.ask(asker, key=KEY, local=3)
    del desk.agents.connected[gone.process]
    desk.agents.comes(101)  # the same process, with the agent of another program
    desk.ask(stays, key=KEY, local=3)
    assert (await desk.answer(stays))[0]
    assert desk.pids() == [{103}]
    assert not gone.answers
    assert not execs.answers


async def test_all_of_a_key_have_gone_away(desk: Desk) -> None:
    asker = desk.agents.comes(100)
    desk.ask(asker, key=KEY, local=1)
    del desk.agents.connected[asker.process]
    other = desk.agents.comes(101)
    desk.ask(other, key="other", local=1)
    await desk.answer(other)
    assert desk.pids() == [{101}]


async def test_one_that_comes_back_while_it_is_waited_for_is_answered_once_over_the_new_connection(desk: Desk) -> None:
    lost, other = desk.agents.comes(100), desk.agents.comes(101)
    desk.ask(lost, key=KEY, local=2)
    back = desk.agents.comes(100)
    desk.ask(back, key=KEY, local=2)
    desk.ask(other, key=KEY, local=2)
    assert await desk.answer(back) == await desk.answer(other)
    assert desk.pids() == [{100, 101}]
    assert not lost.answers


async def test_one_that_asks_again_has_the_answer_of_before_also_of_the_next_daemon(rig: Rig) -> None:
    agents = Agents(rig)
    async with open_desk(rig, agents) as desk:
        asker = agents.comes(100)
        desk.ask(asker, key=KEY, local=1)
        capture, _ = await desk.answer(asker)
        back = agents.comes(100)
        desk.ask(back, key=KEY, local=1)
        assert await desk.answer(back) == (capture, "")
    async with open_desk(rig, agents) as desk:
        again = agents.comes(100)
        desk.ask(again, key=KEY, local=1)
        _, why = await desk.answer(again)
        assert "before this had ended" in why  # that capture has ended with its daemon; no second one begins
        assert [record.id for record in desk.captures()] == [capture]


async def test_a_daemon_that_ends_starts_none_of_those_that_it_gathers(rig: Rig) -> None:
    agents = Agents(rig)
    async with open_desk(rig, agents) as desk:
        desk.ask(agents.comes(100), key=KEY, local=2)
        [gathered] = desk.asked._batches.values()
    assert gathered.timer is not None
    assert gathered.timer.cancelled()
    assert rig.records.kept == {}


async def test_a_process_that_comes_while_the_capture_begins_gets_its_own(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is it refused for not being in the one that begins."""
    first, second = desk.agents.comes(100), desk.agents.comes(101)
    start, began, go_on = desk.asked._manager.start, asyncio.Event(), asyncio.Event()
    named: list[int] = []
    monkeypatch.setattr("profd.kernel.names.user_name", lambda uid: str(named.append(uid)))

    async def slowly(caller: Any, request: Any) -> CaptureRecord:
        began.set()
        await go_on.wait()
        return await start(caller, request)

    monkeypatch.setattr(desk.asked._manager, "start", slowly)
    desk.ask(first, key=KEY, local=1)
    await began.wait()
    desk.ask(second, key=KEY, local=1)
    await eventually(lambda: len(named) == 2)
    await asyncio.to_thread(int)  # the second is where it would begin
    go_on.set()
    assert (await desk.answer(first))[0] != (await desk.answer(second))[0]
    assert sorted(map(sorted, desk.pids())) == [[100], [101]]


async def test_one_that_asks_twice_at_once_hears_of_both(desk: Desk) -> None:
    asker = desk.agents.comes(100)
    desk.ask(asker, 1, key=KEY, local=2)
    desk.ask(asker, 2, key=KEY, local=2)
    assert "same key again" in (await desk.answer(asker, 1))[1]
    assert not desk.pids()  # the other is still waited for
    desk.ask(desk.agents.comes(101), key=KEY, local=2)
    assert (await desk.answer(asker, 2))[0]


async def test_no_more_processes_are_waited_for_than_a_capture_takes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CAPTURE_TARGETS_MAX", 4)
    askers = [desk.agents.comes(100 + number) for number in range(4)]
    for asker in askers:
        desk.ask(asker, key=KEY, local=1 << 62)
    assert not desk.asked._batches
    assert (await desk.answer(askers[0]))[0]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        pytest.param({"iterations": 0}, "give --duration or --iterations", id="nothing"),
        pytest.param({"duration_ns": 1}, "not both", id="both"),
        pytest.param({"iterations": 1 << 62}, "iterations", id="iterations"),
        pytest.param({"iterations": 0, "duration_ns": 1 << 62}, "duration", id="duration"),
        pytest.param({"begin_step": 1 << 62}, "step", id="step"),
        pytest.param({"hosts": 1 << 62, "key": KEY, "local": 1}, "fleet", id="hosts"),
    ],
)
async def test_what_no_capture_can_be_is_refused_and_said(desk: Desk, said: dict[str, Any], why: str) -> None:
    asker = desk.agents.comes(100)
    desk.ask(asker, **said)
    capture, answer = await desk.answer(asker)
    assert (capture, why in answer) == ("", True), answer
    assert [line[0] for line in desk.rig.audit.lines] == ["capture.denied"]


async def test_a_key_has_so_many_captures(desk: Desk) -> None:
    desk.asked._starts = Rates(Rate("", "", 1, WISH_BATCHES_MAX + 1))
    for pid in range(100, 100 + WISH_BATCHES_MAX):
        asker = desk.agents.comes(pid)
        desk.ask(asker, key=KEY, local=1)
        capture, _ = await desk.answer(asker)
        await desk.rig.source.started(pid)
        desk.rig.source.finish(pid)
        await ended(desk.asked._manager, capture)
    last = desk.agents.comes(200)
    desk.ask(last, key=KEY, local=1)
    assert f"{WISH_BATCHES_MAX} captures" in (await desk.answer(last))[1]
