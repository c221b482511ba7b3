"""The threads that write, users in turn, and the one that syncs."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest
from profd.attached.ingest import writer as writer_module
from profd.attached.ingest.journal_file import JournalFile, JournalFull
from profd.attached.ingest.writer import Syncer, Writer

from tests.support.ingest import chunk_bytes


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Inodes that were synced, in order."""
    seen: list[int] = []
    real = os.fdatasync

    def note(fd: int) -> None:
        seen.append(os.fstat(fd).st_ino)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", note)
    return seen


def written(folder: Path, name: str) -> JournalFile:
    file = JournalFile(folder / name)
    file.append(memoryview(chunk_bytes()))
    return file


def inode(file: JournalFile) -> int:
    return file.path.stat().st_ino


def test_writes_within_a_moment_are_synced_together(tmp_path: Path, synced: list[int]) -> None:
    syncer = Syncer(seconds=60)
    one, two = written(tmp_path, "one"), written(tmp_path, "two")
    for file in (one, two, one, one):
        syncer.written(file)
    syncer.open()
    syncer.close()
    assert sorted(synced) == sorted((inode(one), inode(two)))
    one.close()
    two.close()


def test_file_is_synced_again_only_when_it_was_written(tmp_path: Path, synced: list[int]) -> None:
    file = written(tmp_path, "one")
    file.sync()
    file.sync()
    assert len(synced) == 1
    file.append(memoryview(chunk_bytes(0, 1)))
    file.sync()
    assert len(synced) == 2
    file.close()


def test_closed_file_is_synced_first(tmp_path: Path, synced: list[int]) -> None:
    syncer = Syncer(seconds=0)
    syncer.open()
    file = written(tmp_path, "one")
    syncer.close_file(file)
    with pytest.raises(JournalFull, match="closed"):
        file.append(memoryview(chunk_bytes(0, 1)))
    syncer.close()
    assert synced == [inode(file)]
    assert file._fd == -1


def test_disk_that_cannot_sync_is_counted_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached = threading.Event()

    def fail(fd: int) -> None:
        reached.set()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    syncer = Syncer(seconds=0)
    syncer.open()
    one, two = written(tmp_path, "one"), written(tmp_path, "two")
    syncer.written(one)
    assert reached.wait(60)
    syncer.written(two)
    syncer.close()
    assert syncer.failures == 2
    one.close()
    two.close()


async def test_users_have_their_turns_however_much_one_of_them_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "INGEST_WRITERS", 1)
    writer, begin, order = Writer(), threading.Event(), list[int]()
    writer.start(9, begin.wait)
    asked = [writer.run(uid, lambda uid=uid: order.append(uid)) for uid in (1, 1, 1, 1, 2, 2)]
    everything = asyncio.gather(*asked)
    await asyncio.sleep(0)  # all are asked for
    begin.set()
    await everything
    assert order == [1, 2, 1, 2, 1, 1]
    writer.close()


async def test_one_user_has_one_thread_and_others_another() -> None:
    writer, slow = Writer(), threading.Event()
    order: list[str] = []
    writer.start(1, slow.wait)  # a disk that takes nothing, say
    second = asyncio.ensure_future(writer.run(1, lambda: order.append("the same user's")))
    await writer.run(2, lambda: order.append("another's"))
    assert not second.done()
    slow.set()
    await second
    assert order == ["another's", "the same user's"]
    writer.close()


async def test_what_was_asked_for_is_done_before_the_end_and_errors_are_the_askers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    writer, begin, order = Writer(), threading.Event(), list[int]()
    writer.start(1, begin.wait)
    for number in range(5):
        writer.start(1, lambda number=number: order.append(number))
    writer.start(1, lambda: 1 // 0)
    failing = asyncio.ensure_future(writer.run(2, lambda: 1 // 0))
    with pytest.raises(ZeroDivisionError):
        await failing
    threading.Timer(0.0, begin.set).start()
    writer.close()
    assert order == [0, 1, 2, 3, 4]
    assert "ingest failed" in caplog.text
    with pytest.raises(RuntimeError):
        await writer.run(1, lambda: None)
