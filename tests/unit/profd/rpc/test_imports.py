"""Imports as they arrive: a stalled one is given up, the disk is asked first."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from profd.disk.space import Claim, Space
from profd.errors import BadTrace, DiskFull, Exhausted
from profd.fairness.shares import Holder
from profd.limits import IMPORT_ASIDE_BYTES
from profd.rpc import imports
from profd.rpc.imports import received
from profproto.v1 import trace_pb2 as pb

from tests.support.waiting import eventually

ALICE = Holder(1001, reserved=False)


def claim(free: int = 1 << 30) -> Claim:
    return Space(Path("/"), uid_share=2.0, measure=lambda: (free, 0)).claim(1, "this import")


async def sent(*pieces: bytes) -> AsyncIterator[pb.ImportChunk]:
    yield pb.ImportChunk(filename="t.json")
    for piece in pieces:
        yield pb.ImportChunk(data=piece)


async def test_what_came_is_written() -> None:
    file = io.BytesIO()
    assert await received(sent(b"ab", b"c"), file, claim(), ALICE) == ("t.json", "", "")
    assert file.read() == b"abc"
    with pytest.raises(BadTrace, match="empty"):
        await received(sent(), file, claim(), ALICE)


async def test_one_that_stalls_is_given_up() -> None:
    async def stalling() -> AsyncIterator[pb.ImportChunk]:
        yield pb.ImportChunk(data=b"a")
        await asyncio.Event().wait()

    with pytest.raises(Exhausted, match=r"nothing came of this import for 0\.01 s"):
        await received(stalling(), io.BytesIO(), claim(), ALICE, idle_seconds=0.01)


async def test_empty_chunks_are_no_progress() -> None:
    async def dripping() -> AsyncIterator[pb.ImportChunk]:
        while True:
            yield pb.ImportChunk(filename="t.json")
            await asyncio.sleep(0)

    with pytest.raises(Exhausted, match=r"nothing came of this import for 0\.05 s"):
        await received(dripping(), io.BytesIO(), claim(), ALICE, idle_seconds=0.05)


async def test_a_file_comes_slowly_while_an_answer_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "IMPORT_ASIDE_SECONDS", 3600.0)
    stretch = bytes(IMPORT_ASIDE_BYTES)
    file, awaited = io.BytesIO(), [False, True]
    pieces = sent(stretch[1:], b"a", stretch, b"b")
    coming = asyncio.create_task(received(pieces, file, claim(), ALICE, awaited=lambda: awaited.pop(0)))
    await eventually(lambda: len(file.getvalue()) == 2 * len(stretch) and not awaited)
    assert not coming.done()
    coming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await coming


async def test_nothing_is_written_that_there_is_no_room_for() -> None:
    file = io.BytesIO()
    with pytest.raises(DiskFull, match="this import needs 60 bytes more"):
        await received(sent(bytes(50), bytes(60)), file, claim(100 - 50), ALICE)
    assert len(file.getvalue()) == 50
