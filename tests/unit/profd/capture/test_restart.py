"""Captures that a daemon finds when it comes back: what it kept of them, and what it does with it."""

from __future__ import annotations

import asyncio
import copy
from dataclasses import replace
from pathlib import Path

import pytest
from profd.capture.manager import CaptureManager
from profd.capture.records import TargetRecord
from profd.errors import Exhausted, Unavailable
from profd.journal.journal import NOTE, Journal
from profd.limits import CAPTURE_COMMAND_CHARACTERS_MAX, CAPTURE_JOB_CHARACTERS_MAX
from profd.model.capture import Reason, State
from profd.trust.caller import Caller

from tests.support.captures import (
    ALICE,
    BOB,
    LONG,
    ROOT,
    MemoryRecords,
    Rig,
    ended,
    process,
    request,
    until,
)


class TestRestart:
    async def test_every_capture_gets_its_terminal_state(self, rig: Rig) -> None:
        # GIVEN a daemon that dies while one target records and one is in the worker
        rig.storing.gate = asyncio.Event()
        first = rig.manager()
        await first.open()
        record = await first.start(ALICE, request(100, 101, request_id="r"))
        await rig.source.started(100)
        await rig.source.started(101)
        rig.source.finish(101)
        await until(first, record.id, lambda r: r.targets[1].state is State.COLLATING)
        await first._book.flush()
        on_disk = rig.records.kept.copy()
        files = list(record.targets[1].files)
        rig.records.put = lambda capture, record: None  # type: ignore[method-assign]  # it is dead
        await first.close(0.0)
        assert all(Path(file.path).exists() for file in files)
        # WHEN the next one starts over the same disk
        del rig.records.put  # as above
        rig.records.kept = on_disk
        rig.storing.gate = None
        async with rig.running() as second:
            found = second.get(ALICE, record.id)
            # THEN the request id still means this capture; what was recorded is stored, what was not has ended
            assert await second.start(ALICE, request(100, request_id="r")) is found
            found = await ended(second, record.id)
            assert [t.state for t in found.targets] == [State.FAILED, State.STORED]
            assert found.targets[0].reason is Reason.DAEMON_RESTARTED

    async def test_a_trace_stored_in_the_last_moment_is_found(self, rig: Rig) -> None:
        async with rig.running() as first:
            record = await first.start(ALICE, request(100))
            await rig.source.started(100)
            kept = rig.records.kept[record.id]
            rig.source.finish(100)
            await ended(first, record.id)
        rig.records.kept = {record.id: kept}
        async with rig.running() as second:
            found = second.get(ALICE, record.id)
            assert (found.state, found.targets[0].trace) == (State.STORED, "t1")

    async def test_raw_files_that_are_needed_no_more_are_removed(
        self, rig: Rig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # GIVEN a daemon that dies behind the record that says that its trace is stored
        with monkeypatch.context() as dying:
            dying.setattr(Journal, "remove", lambda self, capture, process: None)
            async with rig.running() as first:
                record = await first.start(ALICE, request(100))
                await rig.source.started(100)
                rig.source.finish(100)
                await ended(first, record.id)
        assert rig.journal.sessions() == [(record.id, record.targets[0].process)]
        # WHEN the next one starts THEN nothing is left
        async with rig.running() as second:
            assert second.get(ALICE, record.id).state is State.STORED
            assert rig.journal.sessions() == []

    async def test_damaged_records_are_left_out(self, rig: Rig) -> None:
        rig.records.kept = {"c1": {"id": 7}}
        async with rig.running() as manager:
            assert manager.list(ROOT, 10) == []

    async def test_shutdown_stores_what_was_recorded(self, rig: Rig) -> None:
        manager = rig.manager()
        await manager.open()
        record = await manager.start(ALICE, request(100))
        await rig.source.started(100)
        await manager.close(LONG)
        assert record.state is State.STORED
        assert rig.records.kept[record.id]["targets"][0]["trace"] == "t1"
        with pytest.raises(Unavailable, match="shutting down"):
            await manager.start(ALICE, request(101))

    async def test_shutdown_does_not_wait_for_ever(self, rig: Rig) -> None:
        rig.source.stubborn = True
        manager = rig.manager()
        await manager.open()
        record = await manager.start(ALICE, request(100))
        await rig.source.started(100)
        await manager.close(0.0)
        assert (record.state, record.targets[0].reason) == (State.FAILED, Reason.DAEMON_RESTARTED)


def test_a_record_has_the_beginning_of_a_command() -> None:
    target = TargetRecord.of(replace(process(100), command="c" * 4096, job="j" * 4096), "host")
    assert (len(target.command), len(target.job)) == (CAPTURE_COMMAND_CHARACTERS_MAX, CAPTURE_JOB_CHARACTERS_MAX)


@pytest.mark.parametrize("most", ["CAPTURES_KEPT_MAX", "CAPTURE_TARGETS_KEPT_MAX"])
async def test_records_of_one_user_push_out_no_others(rig: Rig, monkeypatch: pytest.MonkeyPatch, most: str) -> None:
    monkeypatch.setattr(f"profd.capture.book.{most}", 3)
    async with rig.running() as manager:
        bobs = await manager.start(BOB, request(102))
        await rig.source.started(102)
        rig.source.finish(102)
        await ended(manager, bobs.id)
        for _ in range(5):
            last = await manager.start(ALICE, request(100))
            await rig.source.started(100)
            rig.source.finish(100)
            await ended(manager, last.id)
    async with rig.running() as manager:
        assert manager.get(BOB).id == bobs.id
        assert len(manager.list(ROOT, 10)) == 3


@pytest.mark.parametrize("most", ["CAPTURES_KEPT_PER_UID_MAX", "CAPTURE_TARGETS_KEPT_PER_UID_MAX"])
async def test_one_user_has_so_many_records(rig: Rig, monkeypatch: pytest.MonkeyPatch, most: str) -> None:
    monkeypatch.setattr(f"profd.capture.book.{most}", 2)
    async with rig.running() as manager:
        for _ in range(4):
            last = await manager.start(ALICE, request(100))
            await rig.source.started(100)
            rig.source.finish(100)
            await ended(manager, last.id)
    async with rig.running() as manager:
        kept = manager.list(ROOT, 10)
        assert len(kept) == 2
        assert kept[0].id == last.id


async def test_one_users_records_have_so_many_bytes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a process of Bob's, and Alice's, of which much is told
    async with rig.running() as manager:
        ends = []
        for caller, pid, words in ((BOB, 102, 0), *[(ALICE, 100, 2000)] * 5):
            last = await manager.start(caller, request(pid))
            await rig.source.started(pid)
            rig.source.finish(pid, replace(rig.source.with_file(pid), warnings=["w" * words]))
            await ended(manager, last.id)
            ends.append(last.id)
        # WHEN her records are more than one user may have THEN her oldest go
        size = rig.records.size(ends[-1])
        assert size > 2000
        monkeypatch.setattr("profd.capture.book.CAPTURE_BYTES_KEPT_PER_UID_MAX", 4 * size)
        await record_one_more(rig, manager)
        assert {ends[0], ends[-1]} < {record.id for record in manager.list(ROOT, 10)}
        assert ends[1] not in {record.id for record in manager.list(ROOT, 10)}
    # also those that an earlier daemon wrote
    monkeypatch.setattr("profd.capture.book.CAPTURE_BYTES_KEPT_PER_UID_MAX", size)
    async with rig.running() as manager:
        assert [record.owner for record in manager.list(ROOT, 10)] == ["alice", "bob"]


@pytest.mark.parametrize("most", ["JOURNAL_TARGETS_PER_UID_MAX", "JOURNAL_TARGETS_MAX", "CAPTURES_KEPT_PER_UID_MAX"])
async def test_one_user_leaves_so_much_raw_data(rig: Rig, monkeypatch: pytest.MonkeyPatch, most: str) -> None:
    """GIVEN captures that cannot be stored, for `profctl retry` WHEN they are more than one may have of them, or have
    no record any more, THEN the oldest folders go, and nobody else's."""
    rig.storing.fail = Exhausted("the store is full")
    monkeypatch.setattr(f"profd.capture.book.{most}", 3)

    async def left(caller: Caller, pid: int) -> Path:
        capture = await manager.start(caller, request(pid))
        await rig.source.started(pid)
        rig.source.finish(pid)
        found = await ended(manager, capture.id)
        assert found.targets[0].files
        return Path(found.targets[0].files[0].path)

    async with rig.running() as manager:
        bobs = await left(BOB, 102)
        alices = [await left(ALICE, 100) for _ in range(5)]
        await manager._book.flush()
        kept = 2 if most == "JOURNAL_TARGETS_MAX" else 3
        assert [path.exists() for path in (bobs, *alices)] == [True, *[False] * (5 - kept), *[True] * kept]
    # also what an earlier daemon left
    monkeypatch.setattr("profd.capture.book.JOURNAL_TARGETS_PER_UID_MAX", 1)
    async with rig.running() as manager:
        assert [path.exists() for path in (bobs, *alices[-2:])] == [True, False, True]


async def record_one_more(rig: Rig, manager: CaptureManager) -> None:
    last = await manager.start(ALICE, request(100))
    await rig.source.started(100)
    rig.source.finish(100)
    await ended(manager, last.id)


async def test_a_daemon_that_dies_before_its_record_says_so_finds_what_was_being_written(rig: Rig) -> None:
    """Of a source whose processes do not come back."""
    async with rig.running() as manager:
        capture = (await manager.start(ALICE, request(100))).id
        await rig.source.started(100)
        directory = rig.source.sessions[100].directory
        (directory / "chunks.pfc").write_bytes(b"x")
        (directory / NOTE).write_text('{"files": {"chunks.pfc": "chunks", "/etc/gone": "x"}}')
        as_it_died = MemoryRecords()
        as_it_died.kept = copy.deepcopy(rig.records.kept)
        after = Rig(rig.directory, rig.table, records=as_it_died)
        async with after.running() as second:
            target = second.get(ROOT, capture).targets[0]
            assert (target.state, target.reason) == (State.FAILED, Reason.DAEMON_RESTARTED)
            assert [(Path(file.path).name, file.format) for file in target.files] == [("chunks.pfc", "chunks")]
