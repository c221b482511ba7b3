"""Opening an intake on a disk that takes its time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from profd.attached.ingest import intake as module
from profd.attached.ingest.intake import EXPECTED, Ingest
from profd.attached.ingest.journal_file import JournalFile
from profd.attached.ingest.remembered import Remembered
from profd.errors import BadInput, Denied
from profd.fairness.shares import Refused
from profd.model.capture import Loss
from profd.targets.process import ProcessId
from profd.trust.caller import Caller

from tests.support.ingest import chunk_bytes
from tests.support.waiting import PATIENCE_SECONDS, eventually


@pytest.fixture
def ingest() -> Iterator[Ingest]:
    found = Ingest()
    found.open()
    yield found
    found.close()


async def test_a_file_that_is_opened_too_late_is_closed_again(
    ingest: Ingest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = threading.Event(), threading.Event()
    opened: list[JournalFile] = []

    def slow(path: Path, claim: object) -> JournalFile:
        asked.set()
        assert answers.wait(PATIENCE_SECONDS)
        opened.append(JournalFile(path))
        return opened[0]

    monkeypatch.setattr(module, "JournalFile", slow)
    expecting = asyncio.create_task(ingest.expect(1, 2, 1000, tmp_path))
    await eventually(asked.is_set)  # the loop is not held
    expecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await expecting
    answers.set()
    await eventually(lambda: opened and opened[0]._fd < 0)
    assert ingest.statistics().expected == 0


async def test_the_process_that_the_daemon_gave_the_arena_to_may_send_and_no_other_of_its_uid(
    ingest: Ingest, tmp_path: Path
) -> None:
    def caller(pid: int, start_ticks: int) -> Caller:
        return Caller(uid=65533, gid=65533, user="65533", admin=False, pid=pid, start_ticks=start_ticks)

    intake = await ingest.expect(1, 2, 0, tmp_path)
    for stranger in (caller(7, 8), caller(0, 0)):
        with pytest.raises(Denied):
            intake.require(stranger)
    intake.sent_by(ProcessId(7, 8))
    intake.require(caller(7, 8))
    for stranger in (caller(7, 9), caller(8, 8), caller(0, 0)):
        with pytest.raises(Denied):
            intake.require(stranger)
    intake.sent_by(ProcessId(7, 0))  # it was gone before it could be looked at
    with pytest.raises(Denied):
        intake.require(caller(7, 0))


async def test_a_file_of_what_is_expected_already_is_closed_again(
    ingest: Ingest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[JournalFile] = []
    monkeypatch.setattr(module, "JournalFile", lambda path, claim: opened.append(JournalFile(path)) or opened[-1])
    await ingest.expect(1, 2, 1000, tmp_path)
    with pytest.raises(BadInput, match="recorded already"):
        await ingest.expect(1, 2, 1000, tmp_path)
    assert [file._fd >= 0 for file in opened] == [True, False]


async def test_a_full_host_records_those_of_others_and_of_root(tmp_path: Path) -> None:
    ingest = Ingest(share=replace(EXPECTED, each=3, host=3, reserved=1))
    ingest.open()
    for number in range(3):
        await ingest.expect(number, 2, 4242, _folder(tmp_path, number))
    with pytest.raises(Refused, match="3 of 3 processes that are recorded from within at once"):
        await ingest.expect(3, 2, 4242, _folder(tmp_path, 3))
    await ingest.expect(4, 2, 4243, _folder(tmp_path, 4))
    await ingest.expect(5, 2, 0, _folder(tmp_path, 5))
    ingest.find(0, 2).close()
    ingest.find(1, 2).close()
    await ingest.expect(6, 2, 4242, _folder(tmp_path, 6))
    ingest.close()
    assert not ingest._share._held


async def test_threads_of_one_user_s_processes_are_bounded_together_and_told(ingest: Ingest, tmp_path: Path) -> None:
    def sent(incarnation: int, stream: int) -> memoryview:
        return memoryview(chunk_bytes(stream, incarnation=incarnation, epoch=2))

    ingest.remembered = Remembered(each=1)
    first, second, other = [
        await ingest.expect(number, 2, uid, _folder(tmp_path, number)) for number, uid in ((1, 42), (2, 42), (3, 43))
    ]
    assert await first.take(sent(1, 0)) == []
    assert await other.take(sent(3, 0)) == []
    assert await second.take(sent(2, 0)) == [(0, "too_many_threads_of_user")]
    assert second.losses == [Loss("ingest", "too_many_threads_of_user", 10)]
    first.close()
    assert await second.take(sent(2, 0)) == []  # what has ended holds nothing
    assert second.events == 10


def _folder(tmp_path: Path, number: int) -> Path:
    found = tmp_path / str(number)
    found.mkdir()
    return found
