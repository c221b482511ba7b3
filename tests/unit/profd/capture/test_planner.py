"""What is said of a capture before anything is touched."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from profd.capture import planner as module
from profd.capture.estimate import HostHeadroom
from profd.capture.planner import ManagerSettings, Planner, Request
from profd.capture.records import CaptureRecord
from profd.errors import Denied, Exhausted, NotFound
from profd.fairness.pieces import AT_A_TIME
from profd.limits import CAPTURE_TARGETS_MAX, PROC_WAIT_SECONDS, MiB
from profd.model.capture import Options, State
from profd.rpc.translate import sighting_message
from profd.sources.base import Offer, Plan
from profd.targets import first_looks, guarded, procfs
from profd.targets.memory import Bound, MemoryLimits, Room
from profd.targets.process import Process, ProcessId
from profd.targets.selector import Selector

from tests.support.captures import ALICE, BOB, ROOT, FakeSource, FakeTable, FixedHeadroom, declare, process, request
from tests.support.waiting import Standstill, eventually


async def test_what_is_done_beside_the_source_is_a_risk_where_there_is_one() -> None:
    # GIVEN something beside the source that matters to processes with GPUs
    source = FakeSource()
    source.planned = replace(Plan(True), risks=("the source's own",))
    table = FakeTable([process(100, gpus=(0,)), process(101)])
    settings = ManagerSettings("host", sidecar_risk=lambda process, options: "clocks are held" if process.gpus else "")
    planner = Planner([source], table, FixedHeadroom(), settings, {})
    # WHEN it is estimated THEN each process is told what concerns it
    plans = await planner.estimate(ALICE, request(100, 101))
    risks = {plan.target.pid: plan.choice.plan.risks for plan in plans if plan.choice.plan}
    assert risks == {100: ("the source's own", "clocks are held"), 101: ("the source's own",)}


async def test_an_admin_is_restricted_by_nothing() -> None:
    table = FakeTable([process(100, private=True)])
    planner = Planner([FakeSource()], table, FixedHeadroom(), ManagerSettings("host"), {})
    for caller, unrestricted in ((ALICE, False), (ROOT, True)):
        [plan] = await planner.estimate(caller, request(100))
        [sighting] = await planner.targets(caller, Selector())
        found = await planner.processes(caller, Selector(pids=(100,)))
        assert plan.process is not None
        seen = (plan.process, sighting.process, *found.allowed)
        assert [(p.private, p.unrestricted) for p in seen] == [(True, unrestricted)] * 3


async def test_who_is_in_a_container_has_its_processes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may have any uid there. What is remembered of others' counts as little as what is looked at."""
    levels = {100: (), 101: (101, 7), 102: (102, 7)}
    table = FakeTable([process(pid, namespace_pids=(pid, *below[1:])) for pid, below in levels.items()])
    monkeypatch.setattr(module, "of_container", lambda pid, container: (pid, container) == (101, 4711))
    planner = Planner([FakeSource()], table, FixedHeadroom(), ManagerSettings("host"), {})
    within = replace(ALICE, container=4711)
    for selector in (Selector(), Selector(users=("alice",)), Selector(pids=(100, 101, 102))):
        found = await planner.processes(within, selector)
        assert [p.id.pid for p in (*found.allowed, *found.forbidden)] == [101]
    plans = await planner.estimate(within, request(100, 101))
    assert [(plan.target.pid, plan.process is None) for plan in plans] == [(101, False), (100, True)]
    assert [p.id.pid for p in (await planner.processes(ALICE, Selector())).allowed] == [100, 101, 102]


async def test_processes_that_say_they_are_of_anothers_job_are_none_of_its_users_capture() -> None:
    """Of an admin's they are; where they are too many the sentence says how to leave them out."""
    liars = [process(200 + each, uid=51001, user="aaron", job="77") for each in range(CAPTURE_TARGETS_MAX)]
    planner = Planner(
        [FakeSource()], FakeTable([process(100, job="77"), *liars]), FixedHeadroom(), ManagerSettings("host"), {}
    )
    of_job = replace(request(), selector=Selector(jobs=("77",)))
    [plan] = await planner.estimate(ALICE, of_job)
    assert plan.target.pid == 100
    with pytest.raises(
        Exhausted, match=r"fewer, such as --user alice \(they belong to 2 users: 1 of alice, 256 of aaron\)"
    ):
        await planner.estimate(ROOT, of_job)


async def test_a_private_one_is_not_found_by_what_its_user_may_not_know() -> None:
    table = FakeTable([process(100, private=True, job="77")])
    planner = Planner([FakeSource()], table, FixedHeadroom(), ManagerSettings("host"), {})
    by_job = replace(request(), selector=Selector(jobs=("77",)))
    with pytest.raises(NotFound):
        await planner.estimate(ALICE, by_job)
    with pytest.raises(NotFound):
        await planner.targets(ALICE, by_job.selector)
    [plan] = await planner.estimate(ALICE, request(100))
    [sighting] = await planner.targets(ALICE, Selector())
    assert plan.target.job == sighting.process.job == ""
    # AND an admin learns all
    [plan] = await planner.estimate(ROOT, by_job)
    [sighting] = await planner.targets(ROOT, by_job.selector)
    assert plan.target.job == sighting.process.job == "77"


async def test_one_that_was_not_looked_at_is_not_called_what_cannot_be_traced() -> None:
    # GIVEN two of which nothing is known, and a source that takes the one for a shell
    unread = "not looked at since it changed: so and so"
    table = FakeTable([process(100, python=False, framework="", unread=unread), process(101, unread=unread)])
    source = FakeSource()
    source.offers[100] = Offer(False, "it runs no Python interpreter.", concerns=False)
    planner = Planner([source], table, FixedHeadroom(), ManagerSettings("host"), {})
    # WHEN they are listed THEN both are, with the reason
    shown = [sighting_message(sighting) for sighting in await planner.targets(ALICE, Selector())]
    assert [(one.pid, one.state, one.reason) for one in shown] == [
        (100, "busy", f"it was {unread}"),
        (101, "ready", f"it was {unread}"),
    ]
    # AND a capture says it, too
    [plan, _] = await planner.estimate(ALICE, replace(request(), selector=Selector(users=("alice",))))
    assert plan.choice.source is None
    assert unread in plan.choice.message


async def test_what_is_recorded_from_the_inside_is_the_sources_word_about_itself_and_not_its_name() -> None:
    inside = FakeSource("kineto")
    inside.offers[101] = Offer(False, "its agent does not answer")
    for attached in (False, True):
        inside.declaration = declare("kineto", attached=attached)
        planner = Planner(
            [inside], FakeTable([process(100), process(101)]), FixedHeadroom(), ManagerSettings("host"), {}
        )
        shown = [sighting_message(sighting) for sighting in await planner.targets(ALICE, Selector())]
        assert [(one.pid, one.attached) for one in shown] == [(100, attached), (101, False)]


async def test_who_names_pids_does_not_wait_for_a_look_at_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `where --pid` does: another user may have thousands of them."""
    table = FakeTable([process(100), process(101)])
    planner = Planner([FakeSource()], table, FixedHeadroom(), ManagerSettings("host"), {})
    monkeypatch.setattr(table, "snapshot", lambda: pytest.fail("all were looked at"))
    found = await planner.processes(ALICE, Selector(pids=(101, 999)))
    assert ([one.id.pid for one in found.allowed], found.missing) == ([101], (999,))


async def test_who_lists_does_not_wait_for_processes_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """These may execute programs all the time, or be thousands."""
    theirs = process(103, uid=BOB.uid, user="bob", job="8")
    table = FakeTable([process(100), process(101, ppid=100, job="7"), theirs])
    planner = Planner([FakeSource()], table, FixedHeadroom(), ManagerSettings("host"), {})

    async def seen(**selected: Any) -> list[int]:
        asked = Request(Selector(**selected), Options(duration_ns=1))
        return [plan.target.pid for plan in await planner.estimate(ALICE, asked)]

    with monkeypatch.context() as alone:
        alone.setattr(table, "snapshot", lambda: pytest.fail("all were looked at"))
        alone.setattr(
            table,
            "owned",
            lambda uid, pids=(): [p for p in table.processes.values() if p.uid == uid or p.id.pid in pids],
        )
        assert [one.process.id.pid for one in await planner.targets(ALICE, Selector())] == [100, 101]
        assert await seen(jobs=("7",)) == [101]
        assert await seen(users=(ALICE.user,)) == [100, 101]
        assert await seen(pids=(100, 103), children=True) == [100, 101, 103]
    # AND an answer about others' is as it was
    for selected in ({"jobs": ("8",)}, {"users": ("bob",)}):
        with pytest.raises(Denied, match="belong to bob"):
            await seen(**selected)
    assert await seen(users=(ALICE.user, "bob")) == [100, 101, 103]


async def test_workers_of_other_daemons_are_listed_only_when_all_are() -> None:
    worker = process(101, command='python -m profd.workers.process 18 {"parent": 7}')
    table = FakeTable([process(100), worker])
    planner = Planner([FakeSource()], table, FixedHeadroom(), ManagerSettings("host"), {})

    async def listed(selector: Selector, everything: bool = False) -> list[int]:
        return [one.process.id.pid for one in await planner.targets(ALICE, selector, everything=everything)]

    assert await listed(Selector()) == [100]
    assert await listed(Selector(), everything=True) == [100, 101]
    assert await listed(Selector(pids=(101,))) == [101]


class Slow(FakeTable):
    """Answers when it is asked for the second time."""

    asked = 0

    def recall(self, pid: int) -> None:
        return None

    def get(self, pid: int) -> Process | None:
        self.asked += 1
        return super().get(pid) if self.asked > 1 else None


async def test_one_that_did_not_answer_a_moment_ago_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROC_STUCK_SECONDS", 0.0)
    pid = (1 << 22) + 1  # no process has it
    planner = Planner([FakeSource()], Slow([process(pid)]), FixedHeadroom(), ManagerSettings("host"), {})
    with pytest.raises(NotFound, match="no process has pid"):  # nothing was wrong with it: it is not there
        await planner.estimate(ALICE, request(pid))
    guarded.patience.waited(pid, ALICE.uid, 0.0, PROC_WAIT_SECONDS)
    planner = Planner([FakeSource()], Slow([process(pid)]), FixedHeadroom(), ManagerSettings("host"), {})
    [plan] = await planner.estimate(ALICE, request(pid))
    assert plan.target.pid == pid
    assert plan.choice.source is not None


class Busy(FakeTable):
    """Its first snapshot misses what did not answer."""

    looks = 0

    def snapshot(self) -> list[Process]:
        self.looks += 1
        return super().snapshot()[: None if self.looks > 1 else 1]


async def test_ranks_that_did_not_answer_a_moment_ago_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a job of two ranks, of which one did not answer
    monkeypatch.setattr(module, "PROC_STUCK_SECONDS", 0.0)
    silent: list[object] = []
    monkeypatch.setattr(procfs, "silent_of", lambda uids: len(silent) if uids in (None, {ALICE.uid}) else 0)
    ranks = [replace(process(pid), job="7", rank=pid, python=True) for pid in (100, 101)]

    async def planned(job: str) -> list[int]:
        planner = Planner([FakeSource()], Busy(ranks), FixedHeadroom(), ManagerSettings("host"), {})
        asked = Request(Selector(jobs=(job,)), Options(duration_ns=1))
        return [plan.target.pid for plan in await planner.estimate(ALICE, asked)]

    assert await planned("7") == [100]  # as if it were not there
    # WHEN it is known that one did not THEN they are asked again, and a job that is not found may be there
    silent.append(ranks[1])
    assert await planned("7") == [100, 101]
    with pytest.raises(NotFound, match=r"no process matches --job 8; .* 1 processes do not answer now"):
        await planned("8")


async def test_the_loop_is_free_while_memory_of_many_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN many processes, a window so long that their memory matters, and files that take their time
    memory = MemoryLimits(Path("/none"))
    monkeypatch.setattr(memory, "_host", look := Standstill(lambda: [Room(Bound.HOST, MiB)]))
    source, pids = FakeSource(), range(100, 101 + first_looks.FEW)
    source.planned = replace(Plan(True), memory_bytes=MiB)
    planner = Planner(
        [source], FakeTable(list(map(process, pids))), HostHeadroom(Path("/"), memory), ManagerSettings("host"), {}
    )
    planning = asyncio.create_task(planner.estimate(ALICE, request(*pids, seconds=60.0)))
    # WHEN they are estimated THEN the loop goes on, and what was seen is in the answer
    await eventually(look.reached.is_set)
    look.go_on()
    assert ["1 MiB are available" in plan.choice.message for plan in await planning] == [True] * len(pids)


class Taking(FixedHeadroom):
    """While it looks at the second piece a capture takes a process of the first."""

    def __init__(self, takes: Callable[[], None]) -> None:
        super().__init__()
        self.pieces: list[int] = []
        self._takes = takes

    async def ahead(self, uid: int, processes: Sequence[ProcessId]) -> AbstractContextManager[None]:
        self.pieces.append(len(processes))
        if len(self.pieces) == 2:
            self._takes()
        return nullcontext()


async def test_many_are_planned_in_pieces_and_none_that_a_capture_has_taken_meanwhile() -> None:
    # GIVEN more processes than are planned at once
    processes = list(map(process, range(100, 110 + AT_A_TIME)))
    held: dict[ProcessId, CaptureRecord] = {}
    capture = CaptureRecord("c1", "", "alice", ALICE.uid, 1, Options(), False)
    headroom = Taking(lambda: held.update({processes[0].id: capture}))
    planner = Planner([FakeSource()], FakeTable(processes), headroom, ManagerSettings("host"), held)
    # WHEN another capture takes one of them after it was planned
    first, *others = await planner.estimate(ALICE, request(*(each.id.pid for each in processes)))
    # THEN it is that one's
    assert headroom.pieces[:2] == [AT_A_TIME, 10]
    assert first.choice.state is State.BUSY
    assert "held by capture c1 of alice" in first.choice.message
    assert all(plan.choice.source is not None for plan in others)


class Recalling(FakeTable):
    """Notes who asks what it remembers."""

    asked_by: set[str]

    def recall(self, pid: int) -> Process | None:
        self.asked_by.add(threading.current_thread().name)
        return super().recall(pid)


async def test_what_is_remembered_of_many_is_no_work_of_the_loop() -> None:
    table = Recalling(list(map(process, range(100, 140))))
    planner = Planner([FakeSource()], table, FixedHeadroom(), ManagerSettings("host"), {})
    for count, asked_by in ((first_looks.FEW, {threading.current_thread().name}), (40, {"profd-first-looks"})):
        table.asked_by = set()
        assert len(await planner.estimate(ALICE, request(*range(100, 100 + count)))) == count
        assert table.asked_by == asked_by
