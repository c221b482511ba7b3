"""The thread that syncs."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from profd.attached.ingest.journal_file import JournalFile, JournalFull
from profd.attached.ingest.writer import Syncer

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
