"""Streams that no capture asked for."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from profclient.streamer.arena import Arena
from profclient.streamer.compress import compressor
from profd.errors import JobFailed, WorkerDied
from profd.fairness.shares import Refused
from profd.limits import INGEST_PUSHED_BURST, INGEST_PUSHED_PER_SECOND
from profd.model.capture import Loss
from profd.trust.caller import Caller
from profproto.v1 import ingest_pb2 as pb
from profproto.v1 import ingest_pb2_grpc, trace_pb2, trace_pb2_grpc

from tests.support import arena_writer as writer
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.ingest import EPOCH, INCARNATION, LONG, IngestRig, chunk_bytes, ingest_rig
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
UID = 51000


@pytest.fixture
async def rig() -> AsyncIterator[IngestRig]:
    with tempfile.TemporaryDirectory() as folder:
        async with ingest_rig(Path(folder)) as rig:
            yield rig


def opening(label: str = "mine", incarnation: int = INCARNATION) -> pb.IngestRequest:
    return pb.IngestRequest(
        open=pb.IngestOpen(version_min=1, version_max=1, incarnation=incarnation, epoch=EPOCH, label=label)
    )


class Sender:
    """A client that pushes."""

    def __init__(self, rig: IngestRig, uid: int = UID) -> None:
        self.call: Any = rig.stub().Stream(metadata=rig.metadata(uid))
        self._messages = 0

    async def open(self, label: str = "mine", incarnation: int = INCARNATION) -> Any:
        await self.call.write(opening(label, incarnation))
        return await self._reply()

    async def send(self, data: bytes) -> Any:
        self._messages += 1
        await self.call.write(pb.IngestRequest(chunks=pb.IngestChunks(message=self._messages, data=data)))
        return await self._reply()

    async def finish(self, recorded: int) -> Any:
        lost = [pb.IngestLoss(stage="target", reason="arena_full", count=3)]
        await self.call.write(pb.IngestRequest(finish=pb.IngestFinish(lost=lost, recorded=recorded)))
        return await self._reply()

    async def _reply(self) -> Any:
        async with asyncio.timeout(LONG):
            return await self.call.read()


async def test_becomes_a_trace_of_the_caller(rig: IngestRig) -> None:
    sender = Sender(rig)
    assert (await sender.open("from afar")).version == 1
    await sender.send(chunk_bytes(0, 0, 10) + chunk_bytes(0, 1, 10))
    last = await sender.finish(25)
    assert (last.finished, last.trace) == (True, "t1")
    ((uid, label, data, lost, warnings),) = rig.shelf.kept
    assert (uid, label, warnings) == (UID, "from afar", [])
    assert data == chunk_bytes(0, 0, 10) + chunk_bytes(0, 1, 10)
    assert lost == [Loss("target", "arena_full", 3), Loss("ingest", "missing", 5)]


async def test_sender_that_comes_back_goes_on(rig: IngestRig) -> None:
    first = Sender(rig)
    await first.open()
    await first.send(chunk_bytes(0, 0))
    first.call.cancel()
    second = Sender(rig)
    await second.open()
    await second.send(chunk_bytes(0, 0) + chunk_bytes(0, 1))
    await second.finish(20)
    assert rig.shelf.kept[0][2] == chunk_bytes(0, 0) + chunk_bytes(0, 1)


async def test_sender_that_never_heard_of_its_end_is_told_the_trace(rig: IngestRig) -> None:
    first = Sender(rig)
    await first.open()
    await first.send(chunk_bytes(0, 0))
    last = await first.finish(10)
    again = await Sender(rig).open()
    assert (again.finished, again.trace) == (True, last.trace)


async def test_others_do_not_make_its_end_forgotten(rig: IngestRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.attached.ingest.pushed.INGEST_PUSHED_ENDED_MAX", 3)
    monkeypatch.setattr("profd.attached.ingest.pushed.INGEST_PUSHED_ENDED_PER_UID_MAX", 2)
    for uid, number in ((UID, 1), *((UID + 1, number) for number in range(2, 6)), (UID + 2, 6)):
        sender = Sender(rig, uid)
        await sender.open(incarnation=number)
        await sender.send(chunk_bytes(incarnation=number))
        assert (await sender.finish(10)).trace == f"t{number}"
    assert (await Sender(rig, UID).open(incarnation=1)).trace == "t1"
    assert (await Sender(rig, UID + 1).open(incarnation=5)).trace == "t5"
    # Only whoever has most of them loses the oldest.
    with pytest.raises(grpc.aio.AioRpcError):
        await Sender(rig, UID + 1).open(incarnation=4)
    assert (await Sender(rig, UID + 2).open(incarnation=6)).trace == "t6"


async def test_end_of_another_user_is_not_told(rig: IngestRig) -> None:
    first = Sender(rig)
    await first.open()
    await first.send(chunk_bytes(0, 0))
    await first.finish(10)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await Sender(rig, uid=UID + 1).open()
    assert raised.value.code() is grpc.StatusCode.INTERNAL


async def test_sender_that_asks_while_it_is_stored_waits_for_the_trace(
    rig: IngestRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    store = rig.shelf.import_stream

    async def slow(*arguments: Any) -> Any:
        begun.set()
        await go_on.wait()
        return await store(*arguments)

    monkeypatch.setattr(rig.shelf, "import_stream", slow)
    first = Sender(rig)
    await first.open()
    await first.send(chunk_bytes(0, 0))
    await first.call.write(pb.IngestRequest(finish=pb.IngestFinish(recorded=10)))
    async with asyncio.timeout(LONG):
        await begun.wait()
    first.call.cancel()
    again = asyncio.ensure_future(Sender(rig).open())
    go_on.set()
    assert (await again).trace == "t1"
    assert len(rig.shelf.kept) == 1


async def test_worker_that_dies_over_a_stream_has_a_successor(rig: IngestRig, monkeypatch: pytest.MonkeyPatch) -> None:
    store, died = rig.shelf.import_stream, []

    async def dies_once(*arguments: Any) -> Any:
        if not died:
            died.append(True)
            raise WorkerDied("the worker was ended by signal SIGKILL")
        return await store(*arguments)

    monkeypatch.setattr(rig.shelf, "import_stream", dies_once)
    sender = Sender(rig)
    await sender.open()
    await sender.send(chunk_bytes(0, 0))
    assert (await sender.finish(10)).trace == "t1"
    assert rig.shelf.kept[0][2] == chunk_bytes(0, 0)


async def test_stream_that_could_not_be_stored_is_not_said_to_be(
    rig: IngestRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> Any:
        raise JobFailed("it needed more memory than a worker may use")

    monkeypatch.setattr(rig.shelf, "import_stream", fails)
    sender = Sender(rig)
    await sender.open()
    await sender.send(chunk_bytes(0, 0))
    for asked in (sender.finish(10), Sender(rig).open()):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await asked
        assert raised.value.code() is grpc.StatusCode.INTERNAL


async def test_older_call_that_ends_later_does_not_end_the_stream(
    rig: IngestRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profd.attached.ingest.pushed.UNFINISHED_SECONDS", 0.0)
    first, second = Sender(rig), Sender(rig)
    await first.open()
    await second.open()
    async with asyncio.timeout(LONG):
        assert await first.call.code() is grpc.StatusCode.FAILED_PRECONDITION
    await second.send(chunk_bytes(0, 0))
    await second.finish(10)
    assert [kept[4] for kept in rig.shelf.kept] == [[]]


async def test_sender_that_stays_away_leaves_what_it_sent(rig: IngestRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.attached.ingest.pushed.UNFINISHED_SECONDS", 0.0)
    sender = Sender(rig)
    await sender.open()
    await sender.send(chunk_bytes(0, 0))
    sender.call.cancel()
    await eventually(lambda: rig.shelf.kept)
    ((_, _, data, _, warnings),) = rig.shelf.kept
    assert data == chunk_bytes(0, 0)
    assert "went away" in warnings[0]


async def test_nobody_else_may_add_to_it(rig: IngestRig) -> None:
    await Sender(rig).open()
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await Sender(rig, uid=UID + 1).open()
    assert raised.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_stream_without_events_is_no_trace(rig: IngestRig) -> None:
    sender = Sender(rig)
    await sender.open()
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await sender.finish(0)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "no event came" in (raised.value.details() or "")


async def test_streams_of_one_user_are_bounded(rig: IngestRig) -> None:
    senders = [Sender(rig) for _ in range(8)]
    for number, sender in enumerate(senders):
        await sender.open(incarnation=number)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await Sender(rig).open(incarnation=99)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await Sender(rig, uid=UID + 1).open(incarnation=100)


async def test_two_users_who_say_nothing_keep_nobody_out(rig: IngestRig) -> None:
    for uid in (UID, UID + 1):
        for number in range(8):
            await Sender(rig, uid).open(incarnation=100 * uid + number)
    other = Sender(rig, uid=UID + 2)
    await other.open()
    await other.send(chunk_bytes(0, 0))
    assert (await other.finish(10)).trace == "t1"


async def test_one_that_says_nothing_is_ended_and_what_came_is_stored(
    rig: IngestRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("profd.rpc.ingest.INGEST_PUSHED_IDLE_SECONDS", 0.2)
    sender, empty = Sender(rig), Sender(rig)
    await sender.open("from afar")
    await empty.open(incarnation=99)
    await sender.send(chunk_bytes(0, 0))
    assert (await sender.send(b"")).acked == 2  # says only that it is there
    async with asyncio.timeout(LONG):
        for call, said in ((sender.call, "had come is the trace t1"), (empty.call, "no event came")):
            assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert said in await call.details()
    assert [(kept[2], kept[4]) for kept in rig.shelf.kept] == [
        (chunk_bytes(0, 0), ["its sender said nothing for 0.2 s, and had not finished"])
    ]
    assert not rig.pushed._share._held


async def test_who_opens_again_and_again_is_told_to_wait(rig: IngestRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.pushed._rate, "_clock", lambda: 0.0)  # on a busy host the rate would allow them all
    caller = Caller(uid=UID, gid=100, user="u", admin=False, pid=0)

    async def again() -> None:
        for _ in range(2 * INGEST_PUSHED_BURST):
            await rig.pushed.open(caller, INCARNATION, EPOCH, "again")

    with pytest.raises(Refused) as raised:
        await again()
    assert (raised.value.kind, raised.value.limit) == ("pushed_rate", INGEST_PUSHED_PER_SECOND)


async def test_empty_ones_do_not_fill_the_log(rig: IngestRig, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(20):
        sender = Sender(rig)
        await sender.open(incarnation=number)
        with pytest.raises(grpc.aio.AioRpcError, match="no event came"):
            await sender.finish(0)
    assert caplog.text.count("a pushed stream was not stored") == 5


async def test_process_that_a_capture_waits_for_cannot_be_taken_over(rig: IngestRig) -> None:
    intake = await rig.ingest.expect(INCARNATION, EPOCH, UID, rig.folder)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await Sender(rig, uid=UID + 1).open()
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    intake.close()


@pytest.fixture
def daemon() -> Iterator[RunningDaemon]:
    with running_daemon() as daemon:
        yield daemon


def test_pushed_to_a_real_daemon_and_read_back(daemon: RunningDaemon) -> None:
    strings = writer.Strings()
    names = [strings.id("forward"), strings.id("backward")]
    slots = [writer.Slot(10_000 * n, 10_000 * n + 4_000, name=names[n % 2]) for n in range(1, 101)]
    chunk = writer.Chunk(slots, opened=(1, 1, 10**18), sealed=(2_000_000, 2_000_000, 10**18 + 2_000_000))
    fd = writer.arena_fd([chunk], strings, armed=(1, 1, 10**18), latest=(2_000_000, 2_000_000, 10**18 + 2_000_000))
    arena = Arena(fd, compressor())
    batch = arena.batch(1 << 20, last=True)
    assert batch is not None
    arena.close()
    requests = [
        opening("a loop"),
        pb.IngestRequest(chunks=pb.IngestChunks(message=1, data=batch.data)),
        pb.IngestRequest(finish=pb.IngestFinish(recorded=100)),
    ]
    replies = list(
        daemon.stub(ingest_pb2_grpc.IngestServiceStub).Stream(iter(requests), metadata=daemon.metadata(), timeout=LONG)
    )
    assert replies[-1].finished
    traces = daemon.stub(trace_pb2_grpc.TraceServiceStub)
    trace = traces.GetTrace(trace_pb2.TraceRef(id=replies[-1].trace), metadata=daemon.metadata())
    assert (trace.source, trace.title, trace.events, trace.owner_uid) == ("sdk", "a loop", 100, os.getuid())
    rows = traces.KeyAverages(trace_pb2.KeyAveragesRequest(id=trace.id), metadata=daemon.metadata()).rows
    assert sorted((row.name, row.count) for row in rows) == [("backward", 50), ("forward", 50)]
