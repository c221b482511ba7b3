"""Opening an intake on a disk that takes its time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from profd.errors import BadInput
from profd.ingest import intake as module
from profd.ingest.intake import Ingest
from profd.ingest.journal_file import JournalFile

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


async def test_a_file_of_what_is_expected_already_is_closed_again(
    ingest: Ingest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[JournalFile] = []
    monkeypatch.setattr(module, "JournalFile", lambda path, claim: opened.append(JournalFile(path)) or opened[-1])
    await ingest.expect(1, 2, 1000, tmp_path)
    with pytest.raises(BadInput, match="recorded already"):
        await ingest.expect(1, 2, 1000, tmp_path)
    assert [file._fd >= 0 for file in opened] == [True, False]
