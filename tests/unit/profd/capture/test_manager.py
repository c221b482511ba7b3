"""The manager over fake sources and a fake store; time and ends of processes are in the test's hands."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from profd.capture.machine import Graces
from profd.capture.manager import CaptureManager
from profd.capture.planner import Request
from profd.capture.records import CaptureRecord
from profd.errors import BadInput, BadTrace, Denied, Exhausted, JobFailed, NotFound, Unavailable
from profd.fairness.shares import Refused
from profd.limits import (
    CAPTURE_WINDOW_MAX_NS,
    CAPTURES_ACTIVE_MAX,
    CAPTURES_ACTIVE_PER_UID_MAX,
    CAPTURES_ACTIVE_RESERVED,
)
from profd.model.capture import Fleet, Options, Reason, Recording, State
from profd.sources.base import Offer
from profd.targets.process import Process
from profd.targets.selector import Selector

from tests.support.captures import (
    ALICE,
    BOB,
    LONG,
    ROOT,
    SECOND_NS,
    Rig,
    ended,
    person,
    process,
    request,
    until,
)

FLEET = Fleet("f0123456789ab", "node1", 2, "hosts")
SOON = Graces(stopping_ns=1_000_000, ended_ns=1_000_000, hearing_ns=0)


def raw_left(rig: Rig) -> list[Path]:
    return [path for path in (rig.directory / "journal").rglob("*") if path.is_file()]


class Beside:
    """A recording beside a source: who ended it."""

    def __init__(self) -> None:
        self.thread = ""

    def finish(self, recording: Recording, directory: Path) -> None:
        self.thread = threading.current_thread().name

    def drop(self) -> None: ...


async def test_what_is_recorded_beside_a_source_is_written_by_threads_of_the_users_share(tmp_path: Path) -> None:
    rig, beside = Rig(tmp_path), Beside()
    rig.table.processes[100] = process(100)
    rig.begin_sidecar = lambda process, options: beside
    async with rig.running() as manager:
        record = await manager.start(ALICE, request(100))
        await rig.source.started(100)
        rig.source.finish(100)
        await ended(manager, record.id)
    assert beside.thread.startswith("profd-calls")


class TestStart:
    async def test_stores_a_trace(self, rig: Rig, manager: CaptureManager) -> None:
        record = await manager.start(ALICE, request(100))
        assert record.state is State.REQUESTED
        await rig.source.started(100)
        await until(manager, record.id, lambda r: r.state is State.RECORDING)
        rig.source.finish(100)
        record = await ended(manager, record.id)
        target = record.targets[0]
        assert (record.state, target.trace, target.events, target.source) == (State.STORED, "t1", 10, "kineto")
        assert target.choice.startswith("the best source")
        await manager._book.flush()
        assert CaptureRecord.from_json(rig.records.kept[record.id]) == record
        assert raw_left(rig) == []

    async def test_the_same_request_id_is_the_same_capture(self, rig: Rig, manager: CaptureManager) -> None:
        asked = request(100, request_id="r")
        first, second = await asyncio.gather(manager.start(ALICE, asked), manager.start(ALICE, asked))
        assert first is second is await manager.start(ALICE, asked)
        other = await manager.start(BOB, request(102, request_id="r"))
        assert other is not first
        assert len(rig.records.kept) == 2

    async def test_goes_on_when_its_first_caller_leaves(self, rig: Rig, manager: CaptureManager) -> None:
        asked = request(100, request_id="r")
        gone = asyncio.create_task(manager.start(ALICE, asked))
        await asyncio.sleep(0)
        gone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await gone
        assert (await manager.start(ALICE, asked)).targets[0].pid == 100
        assert len(rig.records.kept) == 1

    async def test_goes_on_when_its_only_caller_leaves(self, rig: Rig, manager: CaptureManager) -> None:
        rig.records.gate = threading.Event()
        gone = asyncio.create_task(manager.start(ALICE, request(100)))
        async with asyncio.timeout(LONG):
            while not manager.list(ALICE, 1):
                await asyncio.sleep(0)
        gone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await gone
        rig.records.gate.set()
        await rig.source.started(100)
        rig.source.finish(100)
        assert (await ended(manager, manager.get(ALICE).id)).state is State.STORED

    async def test_denials_are_audited(self, rig: Rig, manager: CaptureManager) -> None:
        record = await manager.start(ALICE, request(100, 102))
        assert ("capture.start", 51000, {"capture": record.id, "targets": [100], "denied": [102]}) in rig.audit.lines

    async def test_a_held_process_is_busy(self, rig: Rig, manager: CaptureManager) -> None:
        first = await manager.start(ALICE, request(100))
        second = await manager.start(ALICE, request(100, 101))
        held, free = second.targets
        assert (held.state, held.reason) == (State.BUSY, Reason.CAPTURE_RUNNING)
        assert first.id in held.message
        assert free.state is State.REQUESTED

    async def test_the_holder_is_named_only_to_who_may_see_it(self, rig: Rig, manager: CaptureManager) -> None:
        first = await manager.start(ROOT, request(100))
        second = await manager.start(ALICE, request(100))
        assert first.id not in second.targets[0].message
        assert second.state is State.BUSY

    async def test_a_capture_of_a_fleet_is_found_by_its_id(self, rig: Rig, manager: CaptureManager) -> None:
        asked = replace(request(100, request_id="fleet:f0123456789ab"), fleet=FLEET)
        record = await manager.start(ALICE, asked)
        assert manager.get(ALICE, FLEET.id).id == record.id
        assert (await manager.start(ALICE, asked)).id == record.id
        with pytest.raises(NotFound, match="newest 1000 are kept at most; traces of earlier ones"):
            manager.get(BOB, FLEET.id)

    async def test_ids_of_fleets_are_their_clients_so_ones_own_comes_first(
        self, rig: Rig, manager: CaptureManager
    ) -> None:
        own = await manager.start(ROOT, replace(request(100), fleet=FLEET))
        await manager.start(BOB, replace(request(102), fleet=FLEET))
        assert manager.get(ROOT, FLEET.id).id == own.id

    async def test_a_fleet_id_of_two_users_names_neither_for_an_admin(self, rig: Rig, manager: CaptureManager) -> None:
        """GIVEN a user who calls a capture as another's is called THEN root is not led to it in the other's place."""
        alices = await manager.start(ALICE, replace(request(100), fleet=FLEET))
        assert manager.get(ROOT, FLEET.id).id == alices.id
        bobs = await manager.start(BOB, replace(request(102), fleet=FLEET))
        for ask in (manager.get, manager.stop):
            with pytest.raises(BadInput, match=f"2 users call themselves {FLEET.id}.*own id on its host"):
                ask(ROOT, FLEET.id)
        assert [manager.get(of, FLEET.id).id for of in (ALICE, BOB)] == [alices.id, bobs.id]

    @pytest.mark.parametrize(
        "wrong", [{"id": "f"}, {"id": "c0123456789ab"}, {"id": "f0123456789AB"}, {"hosts": 0}, {"hosts": 1 << 30}]
    )
    async def test_a_fleet_that_no_client_makes_up(self, manager: CaptureManager, wrong: dict[str, Any]) -> None:
        with pytest.raises(BadInput, match="fleet"):
            await manager.start(ALICE, replace(request(100), fleet=replace(FLEET, **wrong)))

    async def test_a_released_process_can_be_captured_again(self, rig: Rig, manager: CaptureManager) -> None:
        for _ in range(2):
            record = await manager.start(ALICE, request(100))
            await rig.source.started(100)
            rig.source.finish(100, Recording())
            record = await ended(manager, record.id)
            assert record.targets[0].reason is Reason.NO_FILE

    async def test_two_processes_at_once(self, rig: Rig, manager: CaptureManager) -> None:
        one = await manager.start(ALICE, request(100))
        two = await manager.start(BOB, request(102))
        await rig.source.started(100)
        await rig.source.started(102)
        assert manager.active == 2
        assert manager.active_sources() == {"kineto": 2}
        rig.source.finish(102)
        assert (await ended(manager, two.id)).state is State.STORED
        assert manager.get(ALICE, one.id).state is State.RECORDING
        rig.source.finish(100)
        assert (await ended(manager, one.id)).state is State.STORED

    async def test_one_of_several_fails(self, rig: Rig, manager: CaptureManager) -> None:
        record = await manager.start(ALICE, request(100, 101))
        await rig.source.started(100)
        await rig.source.started(101)
        rig.source.finish(100)
        rig.source.finish(101, RuntimeError("a fault"))
        record = await ended(manager, record.id)
        assert [t.state for t in record.targets] == [State.STORED, State.FAILED]
        assert record.state is State.FAILED
        assert record.targets[1].reason is Reason.SOURCE_FAILED

    async def test_another_users_process_among_mine(self, manager: CaptureManager) -> None:
        record = await manager.start(ALICE, request(100, 102))
        mine, bobs = record.targets
        assert (bobs.state, bobs.reason, bobs.command) == (State.REFUSED, Reason.NOT_PERMITTED, "")
        assert not mine.state.terminal

    async def test_a_missing_pid_among_mine(self, manager: CaptureManager) -> None:
        record = await manager.start(ALICE, request(100, 999))
        assert (record.targets[1].pid, record.targets[1].reason) == (999, Reason.TARGET_ENDED)

    async def test_only_refusals_end_at_once(self, rig: Rig, manager: CaptureManager) -> None:
        rig.source.offered = Offer(False, "it has no torch.", "Set KINETO_USE_DAEMON=1.")
        record = await manager.start(ALICE, request(100))
        assert (record.state, record.targets[0].reason) == (State.REFUSED, Reason.NO_SOURCE)
        assert "KINETO_USE_DAEMON" in record.targets[0].message
        assert record.finished_ns is not None

    @pytest.mark.parametrize(
        ("caller", "asked", "error"),
        [
            (ALICE, request(999), NotFound),
            (ALICE, request(102), Denied),
            (ALICE, request(), BadInput),
            (ALICE, request(100, seconds=0), BadInput),
            (ALICE, request(100, seconds=-1), BadInput),
            (ALICE, request(100, seconds=CAPTURE_WINDOW_MAX_NS / SECOND_NS + 1), BadInput),
            (ALICE, request(100, iterations=3), BadInput),
            (ALICE, request(100, seconds=0, iterations=-3), BadInput),
            (ALICE, request(100, sample_hz=float("nan")), BadInput),
            (ALICE, request(100, max_overhead=float("nan")), BadInput),
            (ALICE, request(100, max_overhead=0.0), BadInput),
            (ALICE, request(100, max_overhead=1.5), BadInput),
            (ALICE, request(100, last_ns=1), BadInput),
            (ALICE, request(100, last_ns=26 * 1_000_000_000), BadInput),
            (ALICE, request(100, torch="nvprof"), BadInput),
            (ALICE, request(100, start_at_ns=1), BadInput),
            (ALICE, request(100, request_id="r" * 1000), BadInput),
            (ALICE, request(*range(1, 400)), BadInput),
            (ALICE, Request(Selector(pids=(100,)), Options(iterations=3), open_ended=True), BadInput),
        ],
    )
    async def test_refusals(
        self, manager: CaptureManager, caller: object, asked: Request, error: type[Exception]
    ) -> None:
        with pytest.raises(error):
            await manager.start(caller, asked)  # type: ignore[arg-type]  # a person, as parametrised
        assert manager.list(ROOT, 10) == []

    async def test_profd_is_no_target(self, rig: Rig, manager: CaptureManager) -> None:
        rig.own_pids = (100,)
        with pytest.raises(NotFound):
            await manager.start(ALICE, request(100))

    async def test_limits(self, rig: Rig, manager: CaptureManager) -> None:
        most = CAPTURES_ACTIVE_MAX + CAPTURES_ACTIVE_RESERVED
        for number in range(most):
            pid = 1000 + number
            rig.table.processes[pid] = process(pid)
            await manager.start(ROOT, request(pid))
        with pytest.raises(Exhausted, match=str(most)):
            await manager.start(ROOT, request(101))
        # Who has none is not shut out.
        assert not (await manager.start(ALICE, request(100))).terminal

    async def test_no_user_may_fill_the_host(self, rig: Rig, manager: CaptureManager) -> None:
        for number in range(CAPTURES_ACTIVE_PER_UID_MAX):
            pid = 1000 + number
            rig.table.processes[pid] = process(pid)
            await manager.start(ALICE, request(pid))
        with pytest.raises(Exhausted, match="of yours"):
            await manager.start(ALICE, request(100))
        assert not (await manager.start(ROOT, request(100))).terminal

    async def test_seconds_within_an_hour(
        self, rig: Rig, manager: CaptureManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("profd.capture.recorded_seconds.RECORDED_SECONDS_PER_HOUR", 1)
        first = await manager.start(ALICE, request(100))  # of a second
        with pytest.raises(Refused, match="of 1 that one user may have") as caught:
            await manager.start(ALICE, request(101))
        assert (caught.value.kind, caught.value.limit, caught.value.use) == ("recorded_seconds", 1, 1)
        assert not (await manager.start(BOB, request(102))).terminal
        assert not (await manager.start(ROOT, request(101))).terminal
        source = rig.source
        await source.started(100)
        source.finish(100)
        await ended(manager, first.id)
        assert manager._recorded._used[ALICE.uid][0] > 0

    async def test_too_many_processes(self, rig: Rig, manager: CaptureManager) -> None:
        rig.table.processes |= {pid: process(pid) for pid in range(1000, 1300)}
        with pytest.raises(Exhausted, match="302 processes"):
            await manager.start(ALICE, Request(Selector(users=("alice",)), Options(duration_ns=SECOND_NS)))

    async def test_a_full_disk(self, rig: Rig, manager: CaptureManager) -> None:
        rig.headroom.disk_bytes = 0
        with pytest.raises(Exhausted, match="nearly full"):
            await manager.start(ALICE, request(100))

    async def test_a_record_that_cannot_be_written(self, rig: Rig, manager: CaptureManager) -> None:
        rig.records.fail = OSError(errno.ENOSPC, "No space left on device")
        record = await manager.start(ALICE, request(100))
        assert (record.state, record.targets[0].reason) == (State.FAILED, Reason.DISK_FULL)
        rig.records.fail = None
        assert not (await manager.start(ALICE, request(100))).terminal


class TestSwitch:
    async def test_refuses_new_captures_at_once(self, rig: Rig, manager: CaptureManager) -> None:
        running = await manager.start(ALICE, request(100))
        manager.set_enabled(ROOT, False, "maintenance")
        with pytest.raises(Unavailable, match="maintenance"):
            await manager.start(ALICE, request(101))
        assert not running.terminal
        manager.set_enabled(ROOT, True)
        assert not (await manager.start(ALICE, request(101))).terminal

    async def test_is_a_file_an_operator_can_touch(self, rig: Rig, manager: CaptureManager) -> None:
        rig.switch.file.touch()
        with pytest.raises(Unavailable, match="exists"):
            await manager.start(ALICE, request(100))

    async def test_is_for_admins(self, rig: Rig, manager: CaptureManager) -> None:
        with pytest.raises(Denied):
            manager.set_enabled(ALICE, False)
        with pytest.raises(Denied, match="of the host"):  # of a container, where it has the uid of the daemon's user
            manager.set_enabled(replace(ROOT, admin=False), False)
        assert rig.audit.lines == []  # the call's refusal is, once

    async def test_is_also_for_who_runs_the_daemon(
        self, manager: CaptureManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`profd --user` has no admin but root."""
        monkeypatch.setattr(manager, "_settings", replace(manager._settings, operator=ALICE.uid))
        manager.set_enabled(ALICE, False, "mine")
        with pytest.raises(Unavailable, match="mine"):
            await manager.start(ALICE, request(100))


async def test_a_source_that_there_is_not_is_the_callers_mistake(manager: CaptureManager) -> None:
    with pytest.raises(BadInput, match="there is no source 'nope'; there are: kineto"):
        await manager.start(ALICE, request(100, source="nope"))


class TestStop:
    async def test_while_recording_keeps_what_there_is(self, rig: Rig, manager: CaptureManager) -> None:
        record = await manager.start(ALICE, request(100))
        await rig.source.started(100)
        manager.stop(ALICE, record.id)
        record = await ended(manager, record.id)
        assert record.state is State.STORED
        assert record.targets[0].warnings == ["ended before its window: stopped by alice"]

    async def test_what_admins_of_a_former_group_record_of_others(self, rig: Rig, manager: CaptureManager) -> None:
        # GIVEN processes of alice's and bob's, in captures of an admin's, of root's and of alice's own
        rig.table.processes = {pid: process(pid) for pid in (100, 101, 102)} | {103: process(103, uid=51001)}
        rig.table.processes[104] = process(104, uid=51001, private=True)  # his, and the kernel keeps it from him
        admin = person(51001, "bob", admin=True)
        others, roots, own = [
            await manager.start(who, request(pid)) for who, pid in ((admin, 100), (ROOT, 101), (ALICE, 102))
        ]
        his, kept_from_him = [await manager.start(admin, request(pid)) for pid in (103, 104)]
        for pid in (100, 101, 102, 103, 104):
            await rig.source.started(pid)
        # WHEN there is another group THEN what he records by its rights ends, and nothing else
        manager.end_admins()
        for each in (others, kept_from_him):
            record = await ended(manager, each.id)
            assert record.targets[0].warnings == ["ended before its window: profd's admin group was changed"]
        assert [manager.get(ROOT, each.id).terminal for each in (roots, own, his)] == [False] * 3

    async def test_a_start_in_which_the_admin_group_changes(
        self, rig: Rig, manager: CaptureManager, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def look(processes: Sequence[Process]) -> None:
            manager.end_admins()

        monkeypatch.setattr(rig.source, "prepare", look)
        with pytest.raises(Denied, match="admin group"):
            await manager.start(person(51001, "bob", admin=True), request(100))
        assert not manager.list(ROOT, 1)

    async def test_before_the_source_runs(self, rig: Rig, manager: CaptureManager) -> None:
        record = await manager.start(ALICE, request(100))
        manager.stop(ALICE, record.id)
        assert (await ended(manager, record.id)).terminal

    async def test_while_its_record_is_written(self, rig: Rig, manager: CaptureManager) -> None:
        rig.records.gate = threading.Event()
        starting = asyncio.create_task(manager.start(ALICE, request(100)))
        async with asyncio.timeout(LONG):
            while not manager.list(ALICE, 1):
                await asyncio.sleep(0)
        manager.stop(ALICE)
        rig.records.gate.set()
        record = await ended(manager, (await starting).id)
        assert record.state in (State.STORED, State.CANCELLED)

    async def test_while_storing_changes_nothing(self, rig: Rig, manager: CaptureManager) -> None:
        rig.storing.gate = asyncio.Event()
        record = await manager.start(ALICE, request(100))
        await rig.source.started(100)
        rig.source.finish(100)
        await until(manager, record.id, lambda r: r.state is State.COLLATING)
        manager.stop(ALICE, record.id)
        rig.storing.gate.set()
        record = await ended(manager, record.id)
        assert (record.state, record.targets[0].warnings) == (State.STORED, [])

    async def test_after_the_end_changes_nothing(self, rig: Rig, manager: CaptureManager) -> None:
        record = await manager.start(ALICE, request(100))
        await rig.source.started(100)
        rig.source.finish(100)
        await ended(manager, record.id)
        assert manager.stop(ALICE, record.id).state is State.STORED

    async def test_without_an_id_it_is_the_one_that_runs(self, rig: Rig, manager: CaptureManager) -> None:
        running = await manager.start(ALICE, request(100))
        latest = await manager.start(ALICE, request(100))
        assert latest.state is State.BUSY
        assert manager.stop(ALICE) is running
        await ended(manager, running.id)
        with pytest.raises(NotFound, match=rf"nothing to stop\. The latest, {latest.id}, ended as busy"):
            manager.stop(ALICE)
        with pytest.raises(NotFound, match="you have no captures yet"):
            manager.stop(BOB)

    async def test_a_source_that_does_not_listen_is_given_up(self, rig: Rig) -> None:
        rig.graces = SOON
        rig.source.stubborn = True
        async with rig.running() as manager:
            record = await manager.start(ALICE, request(100))
            await rig.source.started(100)
            manager.stop(ALICE, record.id)
            record = await ended(manager, record.id)
            assert (record.state, record.targets[0].reason) == (State.FAILED, Reason.TIMEOUT)

    async def test_is_the_owners(self, rig: Rig, manager: CaptureManager) -> None:
        record = await manager.start(ALICE, request(100))
        with pytest.raises(NotFound):
            manager.stop(BOB, record.id)
        await rig.source.started(100)
        assert manager.stop(ROOT, record.id) is record


class TestEnds:
    async def test_the_process_ends_and_the_source_says_nothing(self, rig: Rig) -> None:
        rig.graces = SOON
        rig.source.stubborn = True
        async with rig.running() as manager:
            record = await manager.start(ALICE, request(100))
            await rig.source.started(100)
            rig.table.end(100)
            record = await ended(manager, record.id)
            assert (record.state, record.targets[0].reason) == (State.FAILED, Reason.TARGET_ENDED)

    async def test_the_process_ends_and_left_a_file(self, rig: Rig, manager: CaptureManager) -> None:
        record = await manager.start(ALICE, request(100))
        await rig.source.started(100)
        rig.table.end(100)
        await until(manager, record.id, lambda r: "has ended" in r.targets[0].doing)
        rig.source.finish(100, rig.source.with_file(100, reason=Reason.TARGET_ENDED, message="it ended"))
        record = await ended(manager, record.id)
        assert (record.state, record.targets[0].reason) == (State.PARTIAL, Reason.TARGET_ENDED)

    async def test_the_source_is_faster_than_the_kernel(self, rig: Rig) -> None:
        rig.graces = Graces(hearing_ns=int(LONG * SECOND_NS))
        async with rig.running() as manager:
            record = await manager.start(ALICE, request(100))
            await rig.source.started(100)
            rig.source.finish(100, Recording(State.FAILED, Reason.SOURCE_FAILED, "its memory is gone"))
            asyncio.get_running_loop().call_later(0.01, rig.table.end, 100)
            record = await ended(manager, record.id)
            assert record.targets[0].reason is Reason.TARGET_ENDED

    async def test_a_recording_of_nothing_says_so_at_once(self, rig: Rig) -> None:
        rig.graces = Graces(hearing_ns=10**6 * SECOND_NS)
        async with rig.running() as manager, asyncio.timeout(LONG):
            record = await manager.start(ALICE, request(100))
            await rig.source.started(100)
            nothing = Recording(State.FAILED, Reason.NO_FILE, "nothing was recorded", start_ns=1, end_ns=2)
            rig.source.finish(100, nothing)
            record = await ended(manager, record.id)
            assert (record.state, record.targets[0].reason) == (State.FAILED, Reason.NO_FILE)

    async def test_the_deadline(self, rig: Rig) -> None:
        rig.source.planned = replace(rig.source.planned, deadline_ns=1)
        async with rig.running() as manager:
            record = await manager.start(ALICE, request(100))
            record = await ended(manager, record.id)
            assert record.targets[0].reason is Reason.TIMEOUT

    async def test_the_deadline_counts_from_an_agreed_start(self, rig: Rig) -> None:
        rig.source.planned = replace(rig.source.planned, deadline_ns=1)
        async with rig.running() as manager:
            ahead = time.time_ns() + 600 * SECOND_NS
            record = await manager.start(ALICE, request(100, start_at_ns=ahead))
            await rig.source.started(100)
            rig.source.finish(100)
            assert (await ended(manager, record.id)).state is State.STORED

    @pytest.mark.parametrize(
        ("error", "reason"),
        [
            (BadTrace("offset 7"), Reason.UNREADABLE),
            (JobFailed("killed"), Reason.WORKER_DIED),
            (Exhausted("too many events"), Reason.OVER_LIMIT),
            (Exhausted("Writing x failed: No space left on device."), Reason.DISK_FULL),
            (OSError(errno.ENOSPC, "full"), Reason.DISK_FULL),
            (OSError(errno.EROFS, "read-only"), Reason.STORE_UNAVAILABLE),
            (RuntimeError("a fault"), Reason.STORE_UNAVAILABLE),
        ],
    )
    async def test_storing_fails_and_can_be_retried(
        self, rig: Rig, manager: CaptureManager, error: Exception, reason: Reason
    ) -> None:
        rig.storing.fail = error
        record = await manager.start(ALICE, request(100))
        await rig.source.started(100)
        rig.source.finish(100)
        record = await ended(manager, record.id)
        assert (record.state, record.targets[0].reason) == (State.FAILED, reason)
        assert len(raw_left(rig)) == 1
        hopeless = reason in (Reason.UNREADABLE, Reason.OVER_LIMIT)
        assert ("its raw data is kept: `profctl retry`" in record.targets[0].message) is not hopeless
        rig.storing.fail = None
        await manager.retry(ALICE, record.id)
        record = await ended(manager, record.id)
        assert (record.state, record.targets[0].trace) == (State.STORED, "t1")
        await manager._book.flush()
        assert raw_left(rig) == []
        with pytest.raises(Unavailable, match="no raw data"):
            await manager.retry(ALICE, record.id)

    async def test_a_running_capture_is_not_retried(self, manager: CaptureManager) -> None:
        record = await manager.start(ALICE, request(100))
        with pytest.raises(Unavailable, match="still running"):
            await manager.retry(ALICE, record.id)

    async def test_a_journal_that_cannot_be_written(self, rig: Rig, manager: CaptureManager) -> None:
        (rig.directory / "journal").rmdir()
        (rig.directory / "journal").write_text("a file where the directory should be")
        record = await ended(manager, (await manager.start(ALICE, request(100))).id)
        assert (record.state, record.targets[0].reason) == (State.FAILED, Reason.STORE_UNAVAILABLE)


async def test_named_processes_are_looked_at_alone(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    whole = rig.table.snapshot
    monkeypatch.setattr(rig.table, "snapshot", lambda: looks.append("all") or whole())
    async with rig.running() as manager:
        capture = (await manager.start(ALICE, request(100))).id
        assert looks == []
        await manager.start(ALICE, request(101, 102))  # one of them is another user's
        assert looks == ["all"]
        manager.stop(ALICE, capture)
