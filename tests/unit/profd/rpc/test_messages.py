"""What may come in one message, and how fast small ones may follow each other."""

from __future__ import annotations

import asyncio
import ctypes
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from profd import limits
from profd.errors import BadInput
from profd.fairness.rates import Rate, Rates
from profd.fairness.shares import Holder, Refused
from profd.rpc import memory, translate
from profd.rpc.calls import CallsByUser
from profd.rpc.guard import Guard
from profd.rpc.messages import IMPORT, STREAM, Messages, Paced
from profd.rpc.server import RpcServer
from profd.telemetry.metrics import Metrics
from profd.trust.caller import Caller
from profd.trust.token import Tokens
from profproto.v1 import capture_pb2, capture_pb2_grpc, ingest_pb2, query_pb2, trace_pb2

from tests.support import http2
from tests.support.ingest import Audit

ADA = Holder(1000, reserved=False)
TARGETS = "/profd.v1.CaptureService/ListTargets"
EMPTY = b"\x0a\x00"  # field 1, of no bytes


def varint(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80]) + varint(number >> 7) if number > 0x7F else bytes([number])


def within(field: int, content: bytes) -> bytes:
    return bytes([field << 3 | 2]) + varint(len(content)) + content


MANY = EMPTY * (limits.RPC_REQUEST_BYTES_MAX // 2)
DATA = bytes(limits.INGEST_CHUNK_BYTES_MAX)
FAT = {
    "losses": (STREAM, within(3, MANY)),
    "losses beside data": (STREAM, within(2, within(2, DATA[:100])) + within(3, MANY)),
    "fields": (STREAM, b"\x08\x01" * limits.RPC_REQUEST_BYTES_MAX),
    "fields of chunks": (STREAM, within(2, b"\x08\x01" * limits.RPC_REQUEST_BYTES_MAX)),
    "parts of an import": (IMPORT, EMPTY * limits.RPC_REQUEST_BYTES_MAX),
    "a name": (IMPORT, within(1, DATA)),
    "groups": (IMPORT, b"\x0b\x0c" * limits.RPC_REQUEST_BYTES_MAX),
    "a number without an end": (IMPORT, b"\xff" * (limits.RPC_REQUEST_BYTES_MAX + 1)),
    "more than there is": (IMPORT, within(2, DATA)[:-1]),
    "targets": (TARGETS, within(1, within(2, MANY))),
    "readers": ("/profd.v1.TraceService/ShareTrace", b"\x12\x00" + MANY),
    "a question": ("/profd.v1.QueryService/Query", MANY * 2 + EMPTY),
    "reflection": ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", EMPTY * 2049),
}


@pytest.mark.parametrize("what", FAT)
def test_what_is_rich_in_elements_is_not_parsed(what: str) -> None:
    method, data = FAT[what]

    def parse(data: bytes) -> None:
        raise AssertionError("it was parsed")

    with pytest.raises(BadInput, match="a message of "):
        Messages(method, parse).parsed(data)


@pytest.mark.parametrize("data", [MANY + EMPTY, b"\xff"], ids=["too large", "none of them"])
def test_a_refusal_does_not_hold_what_it_refuses(data: bytes) -> None:
    """It lives until the garbage collector finds it: gigabytes, where many came."""
    with pytest.raises(BadInput) as caught:
        Messages(TARGETS, capture_pb2.ListTargetsRequest.FromString).parsed(data)
    ours = [frame.frame for frame in caught.traceback if frame.path.name == "messages.py"]  # type: ignore[union-attr]
    assert len(ours) == 1
    assert "data" not in ours[0].f_locals


def test_what_honest_clients_send_is_taken() -> None:
    chunks = ingest_pb2.IngestRequest(chunks=ingest_pb2.IngestChunks(message=1 << 60, data=DATA))
    assert Messages(STREAM, ingest_pb2.IngestRequest.FromString).parsed(chunks.SerializeToString()) == chunks
    part = trace_pb2.ImportChunk(filename="x" * 255, dialect="torch-legacy", data=DATA)
    assert Messages(IMPORT, trace_pb2.ImportChunk.FromString).parsed(part.SerializeToString()) == part
    asked = query_pb2.QueryRequest(name="sql")
    asked.arguments.update({"sql": "x" * limits.SQL_TEXT_BYTES_MAX, "limit": "5"})
    parse = query_pb2.QueryRequest.FromString
    assert Messages("/profd.v1.QueryService/Query", parse).parsed(asked.SerializeToString()) == asked
    everything = capture_pb2.Selector(pids=[(1 << 31) - 1] * limits.CAPTURE_TARGETS_MAX, users=["x" * 256] * 64)
    request = capture_pb2.ListTargetsRequest(selector=everything)
    assert Messages(TARGETS, capture_pb2.ListTargetsRequest.FromString).parsed(request.SerializeToString()) == request


def test_a_selector_names_so_many_at_most() -> None:
    with pytest.raises(BadInput, match="1025 users were named"):
        translate.selector_from_untrusted(capture_pb2.Selector(users=["u"] * 1025), [])


def test_who_owes_waits_and_who_wants_more_than_there_is_is_refused() -> None:
    now = 0.0
    rates = Rates(Rate("x", "things", 10.0, 20), lambda: now)
    rates.take(ADA, 20)
    assert [rates.owe(ADA, 5), rates.owe(ADA, 5), rates.owe(Holder(2, reserved=False), 5)] == [0.5, 1.0, 0.0]
    now = 2.0
    with pytest.raises(Refused, match=r"try again in 1\.0 s"):
        rates.take(ADA, 20)
    rates.take(ADA, 10)
    assert rates.owe(Holder(1000, reserved=True), 1000) == 0.0


def test_small_messages_of_one_user_count_together_and_those_of_jobs_apart() -> None:
    calls = CallsByUser()
    assert calls.pause(STREAM, ADA, limits.SMALL_MESSAGES_BURST) == 0.0
    assert calls.pause(STREAM, ADA, 50) > 0.0
    assert calls.pause(IMPORT, ADA, 50) == 0.0
    assert calls.pause(STREAM, Holder(1001, reserved=False), 50) == 0.0


async def test_what_follows_small_messages_is_read_when_their_pause_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    messages = Messages(IMPORT, trace_pb2.ImportChunk.FromString)

    async def coming() -> AsyncIterator[Any]:
        for size in (1, 100_000, 2):
            yield messages.parsed(trace_pb2.ImportChunk(data=bytes(size)).SerializeToString())

    paced = Paced(coming(), messages, lambda small: 7.0 * small)
    assert [len(chunk.data) async for chunk in paced] == [1, 100_000, 2]
    assert slept == [7.0, 7.0]


class Captures(capture_pb2_grpc.CaptureServiceServicer):
    async def ListTargets(self, request: Any, context: Any) -> capture_pb2.ListTargetsResponse:  # noqa: N802
        return capture_pb2.ListTargetsResponse()


class Rig:
    def __init__(self, folder: Path) -> None:
        tokens = Tokens()
        add = capture_pb2_grpc.add_CaptureServiceServicer_to_server
        self.guard = guard = Guard(tokens, Audit(), Metrics())
        self.server = RpcServer(folder / "s", guard, {"profd.v1.CaptureService": (add, Captures())})
        self.metadata = (("profd-token", tokens.issue(Caller(uid=1000, gid=1, user="ada", admin=False, pid=0))),)
        options = [("grpc.default_authority", "localhost")]
        self.channel = grpc.aio.insecure_channel(f"unix:{folder / 's'}", options=options)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        rig = Rig(Path(name))
        await rig.server.open(lambda file: file.chmod(0o600))
        yield rig
        await rig.channel.close(None)
        await rig.server.close(0)


async def test_after_a_large_one_memory_is_given_back_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    trims: list[int] = []

    class Libc:
        malloc_trim = trims.append

    monkeypatch.setattr("profd.rpc.memory.ctypes.CDLL", lambda name: Libc)
    given = rig.guard.memory = memory.Trimmer(seconds=0.0)
    call = rig.channel.unary_unary(TARGETS, None, None)
    for data in (MANY + EMPTY, b"\xff", MANY + EMPTY):
        with pytest.raises(grpc.aio.AioRpcError):
            await call(data, metadata=rig.metadata)
    assert given._giving is not None
    await given._giving
    assert 1 <= len(trims) <= 2
    assert set(trims) == {0}


def test_this_libc_gives_memory_back() -> None:
    assert ctypes.CDLL(None).malloc_trim(0) in (0, 1)


@pytest.mark.parametrize(("data", "why"), [(within(1, within(2, MANY)), "takes 65536"), (b"\xff", "is none of")])
async def test_who_sends_it_is_told_so(rig: Rig, data: bytes, why: str) -> None:
    call = rig.channel.unary_unary(TARGETS, None, None)
    with pytest.raises(grpc.aio.AioRpcError, match=why) as caught:
        await call(data, metadata=rig.metadata)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    await call(b"", metadata=rig.metadata)


async def test_without_a_token_a_call_has_so_many_messages(rig: Rig) -> None:
    question = reflection_pb2.ServerReflectionRequest(list_services="")

    def asked(count: int) -> Iterator[reflection_pb2.ServerReflectionRequest]:
        return iter([question] * count)

    stub = reflection_pb2_grpc.ServerReflectionStub(rig.channel)
    few = [answer async for answer in stub.ServerReflectionInfo(asked(limits.UNPROVED_MESSAGES_MAX - 1))]
    assert len(few) == limits.UNPROVED_MESSAGES_MAX - 1
    answers = stub.ServerReflectionInfo(asked(limits.UNPROVED_MESSAGES_MAX))
    with pytest.raises(grpc.aio.AioRpcError, match="has 64 messages at most") as caught:
        [answer async for answer in answers]
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    health = health_pb2_grpc.HealthStub(rig.channel)
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING


async def test_of_a_message_that_nobody_asks_for_little_is_taken(rig: Rig) -> None:
    # gRPC that probes lets each call of a connection send megabytes ahead: 580 calls held 2.3 GB
    reader, writer = await asyncio.open_unix_connection(rig.server.path)
    writer.write(http2.BEGIN + http2.call(TARGETS, 1) + http2.frame(http2.DATA, 0, 1, http2.message(bytes(16_000))))
    got = b""
    async with asyncio.timeout(60):
        while not any(kind == http2.HEADERS for _, kind, _, _ in http2.frames(got)):
            got += await reader.readexactly(1)
    writer.close()
    assert http2.PING not in {kind for _, kind, _, _ in http2.frames(got)}


async def test_no_message_is_larger_than_a_stream_needs(rig: Rig) -> None:
    call = rig.channel.unary_unary(TARGETS, None, None)
    with pytest.raises(grpc.aio.AioRpcError, match="larger than max") as caught:
        await call(bytes(2 * limits.MiB), metadata=rig.metadata)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
