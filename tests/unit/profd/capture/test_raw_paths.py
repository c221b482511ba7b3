"""State that is moved: records name raw files by where they lie in the journal."""

from __future__ import annotations

import asyncio
import copy
import shutil
from pathlib import Path

import pytest
from profd.capture.raw_paths import relative, resolved
from profd.capture.records import CaptureRecord, TargetRecord
from profd.journal.journal import NOTE, Journal
from profd.model.capture import RawFile, Reason, State

from tests.support.captures import ALICE, FakeTable, Rig, ended, process, request, until


def record_of(path: str) -> CaptureRecord:
    target = TargetRecord("host", 7, 70, 1000, "alice", "python", files=[RawFile(path, "chrome")])
    return CaptureRecord("c1", "", "alice", 1000, 1, targets=[target])


@pytest.mark.parametrize(
    ("noted", "found"),
    [
        ("trace.json", "{}/c1/7-70/trace.json"),
        ("windows/1", "{}/c1/7-70/windows/1"),
        ("../../../etc/shadow", "{}/c1/7-70/etc/shadow"),
        ("/old/state/journal/c1/7-70/trace.json", "{}/c1/7-70/trace.json"),
        ("/old/c1/7-70/state/journal/c1/7-70/windows/1", "{}/c1/7-70/windows/1"),
        ("/elsewhere/trace.json", "/elsewhere/trace.json"),
        ("/old/state/journal/c2/7-70/trace.json", "/old/state/journal/c2/7-70/trace.json"),
    ],
)
def test_where_a_noted_file_lies(tmp_path: Path, noted: str, found: str) -> None:
    journal = Journal(tmp_path / "journal")
    record = record_of(noted)
    resolved(record, journal.path)
    assert record.targets[0].files == [RawFile(found.format(tmp_path / "journal"), "chrome")]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_is_written_is_read(tmp_path: Path, elsewhere: bool) -> None:
    journal = Journal(tmp_path / "journal")
    path = "/elsewhere/trace.json" if elsewhere else str(tmp_path / "journal" / "c1" / "7-70" / "trace.json")
    record = record_of(path)
    value = relative(record, journal.path)
    assert value["targets"][0]["files"][0]["path"] == (path if elsewhere else "trace.json")
    again = CaptureRecord.from_json(value)
    resolved(again, journal.path)
    assert again == record


async def killed(rig: Rig, *, collating: bool) -> str:
    """A capture that a daemon leaves behind, with data in its journal; its id."""
    rig.storing.gate = asyncio.Event()
    first = rig.manager()
    await first.open()
    record = await first.start(ALICE, request(100))
    session = await rig.source.started(100)
    if collating:
        rig.source.finish(100)
        await until(first, record.id, lambda r: r.targets[0].state is State.COLLATING)
    else:
        (session.directory / "chunks").write_text("{}")
        (session.directory / NOTE).write_text('{"files": {"chunks": "chunks"}}')
        session.keep([RawFile(str(session.directory / "chunks"), "chunks")])
    await first._book.flush()
    rig.records.kept = copy.deepcopy(rig.records.kept)
    rig.records.put = lambda capture, record: None  # type: ignore[method-assign]  # it is dead
    await first.close(0.0)
    return record.id


@pytest.mark.parametrize("old", [False, True], ids=["relative", "absolute"])
@pytest.mark.parametrize("collating", [False, True], ids=["recording", "collating"])
async def test_a_moved_state_loses_nothing(tmp_path: Path, old: bool, collating: bool) -> None:
    rig = Rig(tmp_path / "old", FakeTable([process(100)]))
    capture = await killed(rig, collating=collating)
    kept = rig.records.kept
    if old:
        for file in kept[capture]["targets"][0]["files"]:
            file["path"] = str(rig.journal.path(capture, process(100).id) / file["path"])
    shutil.move(tmp_path / "old", tmp_path / "new")
    moved = Rig(tmp_path / "new", FakeTable([process(100)]))
    moved.records.kept = kept
    async with moved.running() as manager:
        found = await ended(manager, capture)
        if not collating:
            assert (found.state, found.targets[0].reason) == (State.FAILED, Reason.DAEMON_RESTARTED)
            assert "profctl retry" in found.targets[0].message
            await manager.retry(ALICE, capture)
            found = await ended(manager, capture)
        assert found.state in (State.STORED, State.PARTIAL)
        assert found.targets[0].trace


async def test_data_that_its_record_does_not_name_is_not_dropped(rig: Rig) -> None:
    capture = await killed(rig, collating=False)
    rig.records.kept[capture]["targets"][0]["files"][0]["path"] = "/elsewhere/chunks"
    del rig.records.put  # of the dead one
    async with rig.running() as manager:
        found = await ended(manager, capture)
        assert "profctl retry" not in found.targets[0].message
    assert rig.journal.files(capture, process(100).id)


async def test_no_retry_is_promised_where_there_is_nothing_left(rig: Rig) -> None:
    capture = await killed(rig, collating=True)
    shutil.rmtree(rig.journal.path(capture, process(100).id))
    del rig.records.put  # of the dead one
    rig.storing.gate = None
    rig.storing.fail = FileNotFoundError(2, "No such file or directory")
    async with rig.running() as manager:
        [target] = (await ended(manager, capture)).targets
        assert (target.state, target.reason) == (State.FAILED, Reason.STORE_UNAVAILABLE)
        assert "profctl retry" not in target.message
        assert target.files == []
