"""Clients that send whatever they like: the server answers in its own words, and what is stored is sound."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import grpc
import pytest
from profproto.v1 import ingest_pb2 as pb

from tests.support.ingest import EPOCH, INCARNATION, LONG, IngestRig, chunk_bytes, ingest_rig, names_of

UID = 1000
SESSIONS = int(os.environ.get("PROFD_HOSTILE_SESSIONS", "60"))
ALLOWED = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.CANCELLED,  # by ourselves
}
WROTE_TOO_LATE = "Internal error from Core"  # what grpc's client makes of a write after the end of its call

END: Any = grpc.aio.__dict__["EOF"]  # its stubs have none


class Mischief:
    """One client's random choices."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.message = 0

    def request(self, *, first: bool) -> pb.IngestRequest:
        if first and self.dice.random() < 0.9:
            return pb.IngestRequest(open=self.opening())
        kind = self.dice.choices(("chunks", "finish", "open", "nothing"), (20, 1, 1, 1))[0]
        if kind == "chunks":
            return pb.IngestRequest(chunks=pb.IngestChunks(message=self.number(), data=self.data()))
        if kind == "finish":
            lost = [
                pb.IngestLoss(stage=self.word(), reason=self.word(), count=self.dice.getrandbits(64))
                for _ in range(self.dice.randrange(5))
            ]
            return pb.IngestRequest(finish=pb.IngestFinish(lost=lost, recorded=self.dice.getrandbits(64)))
        return pb.IngestRequest(open=self.opening()) if kind == "open" else pb.IngestRequest()

    def opening(self) -> pb.IngestOpen:
        return pb.IngestOpen(
            version_min=self.dice.choice((0, 1, 1, 1, 2)),
            version_max=self.dice.choice((1, 1, 1, 2, 0)),
            incarnation=self.dice.choice((INCARNATION, INCARNATION, INCARNATION, 0, 2**64 - 1)),
            epoch=self.dice.choice((EPOCH, EPOCH, EPOCH, 0)),
            label=self.dice.choice(("", "", "", self.word())),
        )

    def number(self) -> int:
        self.message += 1
        return self.message if self.dice.random() < 0.98 else self.dice.getrandbits(64)

    def data(self) -> bytes:
        pieces = [self.chunk() for _ in range(self.dice.randrange(6))]
        return b"".join(pieces)

    def chunk(self) -> bytes:
        if self.dice.random() < 0.02:
            return self.dice.randbytes(self.dice.choice((1, 95, 96, 5000, (1 << 20) + 1)))
        data = bytearray(
            chunk_bytes(
                self.dice.choice((0, 1, 2, 2**32 - 1)),
                self.dice.choice((*range(20), 2**64 - 1)),
                self.dice.choice((0, 1, 2046, 2**32 - 1)),
                epoch=EPOCH if self.dice.random() < 0.9 else 1,
                body=self.dice.randbytes(self.dice.randrange(40)),
            )
        )
        if self.dice.random() < 0.2:
            data[self.dice.randrange(len(data))] ^= 1 << self.dice.randrange(8)
        return bytes(data)

    def word(self) -> str:
        return self.dice.choice(("target", "streamer", "arena_full", "\0", "ü" * 500, "../../etc", "{}"))


async def session(rig: IngestRig, dice: random.Random) -> tuple[grpc.StatusCode, str]:
    """One call; the status it ended with, and what was said."""
    metadata = rig.metadata(dice.choice((UID, UID, UID, UID + 1)))
    call: Any = rig.stub().Stream(metadata=metadata)
    mischief = Mischief(dice)
    try:
        async with asyncio.timeout(LONG):
            for number in range(dice.randrange(1, 30)):
                await call.write(mischief.request(first=number == 0))
                if dice.random() < 0.5 and await call.read() is END:
                    break
            if dice.random() < 0.5:
                call.cancel()
            else:
                await call.done_writing()
                while await call.read() is not END:  # the status comes after the last reply
                    pass
    except (grpc.RpcError, asyncio.InvalidStateError, asyncio.CancelledError):
        pass
    return await call.code(), await call.details()


@pytest.mark.slow
async def test_any_conversation_leaves_the_file_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.attached.ingest.pushed.UNFINISHED_SECONDS", 0.0)
    dice = random.Random(os.environ.get("PROFD_HOSTILE_SEED", "1"))
    with tempfile.TemporaryDirectory() as folder:
        async with ingest_rig(Path(folder)) as rig:
            intake = await rig.ingest.expect(INCARNATION, EPOCH, UID, rig.folder)
            for _ in range(SESSIONS // 3):
                seeds = [random.Random(dice.getrandbits(64)) for _ in range(3)]
                ends = await asyncio.gather(*(session(rig, one) for one in seeds))
                assert all(code in ALLOWED or said == WROTE_TOO_LATE for code, said in ends), ends
                await rig.ingest.writer.run(UID, lambda: None)
                names = names_of(intake.path)
                assert len(names) == len(set(names)) == intake.chunks
                if intake.finished.is_set():
                    intake.close()
                    intake.path.unlink()
                    rig.ingest._finished.clear()
                    intake = await rig.ingest.expect(INCARNATION, EPOCH, UID, rig.folder)
            assert intake.failure == ""
