"""The ingest service and clients that keep to the contract, and clients that do not."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from profd.attached.ingest.intake import Intake
from profd.errors import BadInput
from profd.limits import INGEST_CHUNK_BYTES_MAX, INGEST_CREDIT_BYTES, TRACE_EVENTS_MAX
from profd.model.capture import Loss
from profd.rpc.ingest import IngestServicer
from profd.trust import caller as callers
from profd.trust.caller import Caller
from profproto.v1 import ingest_pb2 as pb

from tests.support.ingest import EPOCH, INCARNATION, LONG, IngestRig, chunk_bytes, ingest_rig, names_of

UID = 1000


@pytest.fixture
async def rig() -> AsyncIterator[IngestRig]:
    with tempfile.TemporaryDirectory() as folder:
        async with ingest_rig(Path(folder)) as rig:
            yield rig


@pytest.fixture
async def intake(rig: IngestRig) -> Intake:
    return await rig.ingest.expect(INCARNATION, EPOCH, UID, rig.folder)


class Client:
    """One call, spoken by hand."""

    def __init__(self, rig: IngestRig, uid: int = UID, *, admin: bool = False) -> None:
        self.call: Any = rig.stub().Stream(metadata=rig.metadata(uid, admin=admin))

    async def send(self, **part: Any) -> None:
        await self.call.write(pb.IngestRequest(**part))

    async def reply(self) -> Any:
        async with asyncio.timeout(LONG):
            return await self.call.read()

    async def open(self, incarnation: int = INCARNATION, epoch: int = EPOCH, versions: tuple[int, int] = (1, 1)) -> Any:
        await self.send(
            open=pb.IngestOpen(version_min=versions[0], version_max=versions[1], incarnation=incarnation, epoch=epoch)
        )
        return await self.reply()

    async def chunks(self, message: int, data: bytes) -> Any:
        await self.send(chunks=pb.IngestChunks(message=message, data=data))
        return await self.reply()

    async def finish(self, recorded: int = 0, *lost: tuple[str, str, int]) -> Any:
        losses = [pb.IngestLoss(stage=stage, reason=reason, count=count) for stage, reason, count in lost]
        await self.send(finish=pb.IngestFinish(lost=losses, recorded=recorded))
        return await self.reply()

    async def refused(self) -> tuple[grpc.StatusCode, str]:
        """The status and sentence the call ended with."""
        async with asyncio.timeout(LONG):
            return await self.call.code(), await self.call.details()


async def refused(call: Any) -> tuple[grpc.StatusCode, str]:
    """The status of a call whose next step fails."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return raised.value.code(), raised.value.details() or ""


async def test_a_whole_stream(rig: IngestRig, intake: Intake) -> None:
    client = Client(rig)
    opened = await client.open(versions=(0, 5))
    assert (opened.version, opened.credit_bytes) == (1, INGEST_CREDIT_BYTES)
    data = chunk_bytes(0, 0, 5) + chunk_bytes(0, 1, 6)
    acked = await client.chunks(1, data)
    assert (acked.acked, acked.credit_bytes, list(acked.rejected)) == (1, len(data), [])
    assert not intake.finished.is_set()
    last = await client.finish(20, ("target", "arena_full", 3), ("streamer", "bad_chunk", 2))
    assert last.finished
    assert intake.finished.is_set()
    assert (intake.events, intake.chunks, intake.bytes, intake.recorded) == (11, 2, len(data), 20)
    assert intake.losses == [
        Loss("streamer", "bad_chunk", 2),
        Loss("target", "arena_full", 3),
        Loss("ingest", "missing", 20 - 11 - 2),
    ]
    intake.close()
    assert intake.path.read_bytes() == data


async def test_nobody_waits_for_this_process(rig: IngestRig) -> None:
    code, why = await refused(Client(rig).open(incarnation=99))
    assert code is grpc.StatusCode.NOT_FOUND
    assert "0000000000000063" in why


async def test_other_users_are_denied_and_admins_are_not(rig: IngestRig, intake: Intake) -> None:
    code, why = await refused(Client(rig, uid=UID + 1).open())
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert f"uid {UID}" in why
    assert (await Client(rig, uid=UID + 1, admin=True).open()).version == 1


async def test_no_token(rig: IngestRig, intake: Intake) -> None:
    call: Any = rig.stub().Stream()
    code, _ = await refused(call.read())
    assert code is grpc.StatusCode.UNAUTHENTICATED


async def test_versions_that_do_not_meet(rig: IngestRig, intake: Intake) -> None:
    code, why = await refused(Client(rig).open(versions=(2, 3)))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "versions 1 to 1" in why
    assert "2 to 3" in why


async def test_chunks_before_open(rig: IngestRig, intake: Intake) -> None:
    code, _ = await refused(Client(rig).chunks(1, chunk_bytes()))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert intake.events == 0


@pytest.mark.parametrize("number", [0, 2, 2**63])
async def test_messages_out_of_count(rig: IngestRig, intake: Intake, number: int) -> None:
    client = Client(rig)
    await client.open()
    code, _ = await refused(client.chunks(number, chunk_bytes()))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert intake.events == 0


async def test_opened_twice(rig: IngestRig, intake: Intake) -> None:
    client = Client(rig)
    await client.open()
    code, _ = await refused(client.open())
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_oversized_message(rig: IngestRig, intake: Intake) -> None:
    client = Client(rig)
    await client.open()
    code, why = await refused(client.chunks(1, bytes(INGEST_CHUNK_BYTES_MAX + 1)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert str(INGEST_CHUNK_BYTES_MAX) in why


async def test_corrupt_replayed_reordered_and_foreign_chunks(rig: IngestRig, intake: Intake) -> None:
    client = Client(rig)
    await client.open()
    broken = chunk_bytes(0, 2)[:-1] + b"?"
    reply = await client.chunks(
        1, chunk_bytes(0, 1) + broken + chunk_bytes(0, 1) + chunk_bytes(0, 0) + chunk_bytes(0, 3, epoch=EPOCH + 1)
    )
    assert [(entry.index, entry.reason) for entry in reply.rejected] == [(1, "crc"), (4, "foreign")]
    reply = await client.chunks(2, chunk_bytes(0, 0) + b"rubbish")
    assert [(entry.index, entry.reason) for entry in reply.rejected] == [(1, "header")]
    await client.finish(100)
    assert names_of(intake.path) == [(0, 1), (0, 0)]
    assert intake.again == 2
    assert intake.losses == [
        Loss("ingest", "crc", 1),
        Loss("ingest", "foreign", 10),
        Loss("ingest", "header", 1),
        Loss("ingest", "missing", 100 - 20 - 12),
    ]


async def test_empty_message_is_acked(rig: IngestRig, intake: Intake) -> None:
    client = Client(rig)
    await client.open()
    assert (await client.chunks(1, b"")).acked == 1


async def test_what_is_said_of_losses_is_bounded(rig: IngestRig, intake: Intake) -> None:
    client = Client(rig)
    await client.open()
    await client.finish(
        2**64 - 1,
        ("target", "arena_full", 2**64 - 1),
        ("root", "Ünter\n<b>", 1),
        *(("target", f"reason_{number}", 1) for number in range(1000)),
    )
    assert len(intake.losses) < 70
    assert all(loss.count <= TRACE_EVENTS_MAX for loss in intake.losses)
    assert Loss("streamer", "other", 1) in intake.losses


async def test_client_that_connects_again_ends_its_older_call(rig: IngestRig, intake: Intake) -> None:
    old, new = Client(rig), Client(rig)
    await old.open()
    await old.chunks(1, chunk_bytes(0, 0))
    await new.open()
    code, _ = await old.refused()
    assert code is not grpc.StatusCode.OK
    await new.chunks(1, chunk_bytes(0, 0) + chunk_bytes(0, 1))
    await new.finish(20)
    assert names_of(intake.path) == [(0, 0), (0, 1)]
    assert intake.losses == []


async def test_finish_whose_reply_was_lost(rig: IngestRig, intake: Intake) -> None:
    client = Client(rig)
    await client.open()
    await client.finish()
    intake.close()
    assert (await Client(rig).open()).finished


async def test_closing_the_intake_ends_its_call(rig: IngestRig, intake: Intake) -> None:
    client = Client(rig)
    await client.open()
    await client.chunks(1, chunk_bytes())
    intake.close()
    code, _ = await client.refused()
    assert code is not grpc.StatusCode.OK
    code, _ = await refused(Client(rig).open())
    assert code is grpc.StatusCode.NOT_FOUND


async def test_credit_is_shared_when_there_are_many(rig: IngestRig) -> None:
    clients = []
    granted = []
    for number in range(100):
        clients.append(client := Client(rig, admin=True))
        (rig.folder / str(number)).mkdir()
        await rig.ingest.expect(number, EPOCH, UID, rig.folder / str(number))
        granted.append((await client.open(incarnation=number)).credit_bytes)
    assert granted[0] == INGEST_CREDIT_BYTES
    assert granted[-1] == INGEST_CHUNK_BYTES_MAX
    assert granted == sorted(granted, reverse=True)


async def test_of_one_user_few_first_messages_are_read_at_once(
    rig: IngestRig, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN 580 calls whose first message did not end: each was read, and gRPC held 2.3 GB for its end
    monkeypatch.setattr("profd.rpc.ingest.INGEST_OPENING_PER_UID", 2)
    servicer = IngestServicer(rig.ingest, rig.pushed)
    asked: list[str] = []
    ends = {name: asyncio.Event() for name in ("a", "b", "c", "other")}

    async def coming(name: str) -> AsyncIterator[Any]:
        asked.append(name)
        await ends[name].wait()
        yield pb.IngestRequest(finish=pb.IngestFinish())

    async def stream(name: str, uid: int) -> None:
        callers.enter(Caller(uid=uid, gid=uid, user="u", admin=False, pid=0))
        with pytest.raises(BadInput, match="begins with IngestOpen"):
            await anext(servicer.Stream(coming(name), None))

    calls = [asyncio.create_task(stream(name, 2 if name == "other" else UID)) for name in ends]
    for _ in range(20):  # steps of the event loop: nothing here waits for anything else
        await asyncio.sleep(0)
    assert asked == ["a", "b", "other"]
    # WHEN one has ended: THEN the next is read
    ends["a"].set()
    await calls[0]
    for _ in range(20):
        await asyncio.sleep(0)
    assert asked == ["a", "b", "other", "c"]
    for end in ends.values():
        end.set()
    await asyncio.gather(*calls)
