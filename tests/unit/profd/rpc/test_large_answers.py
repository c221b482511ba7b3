"""Answers that a trace can make as large as it likes: the daemon passes them on, parses few rows, and holds few."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from profd import limits
from profd.errors import BadInput
from profd.fairness.shares import Refused, Shares
from profd.limits import MiB
from profd.offline import run_here
from profd.questions.library import Library
from profd.rpc import answers, calls, errors, guard, traces
from profd.rpc.guard import Guard
from profd.rpc.query import QueryServicer
from profd.rpc.server import RpcServer
from profd.rpc.traces import TraceServicer
from profd.store.store import Store
from profd.telemetry.metrics import Metrics
from profd.trust import caller as callers
from profd.trust.caller import Caller
from profd.trust.token import Tokens
from profproto.v1 import capture_pb2, capture_pb2_grpc, query_pb2, query_pb2_grpc, trace_pb2, trace_pb2_grpc

from tests.support.ingest import Audit
from tests.support.old_answers import FIRST, stored

ANN = Caller(uid=1001, gid=1001, user="ann", admin=False, pid=0)
OPTIONS = [("grpc.default_authority", "localhost"), ("grpc.max_receive_message_length", -1)]


class Captures(capture_pb2_grpc.CaptureServiceServicer):
    async def WatchCapture(self, request: Any, context: Any) -> AsyncIterator[capture_pb2.Capture]:  # noqa: N802
        for _ in range(10):
            yield capture_pb2.Capture(id="c123456789")


class Rig:
    """A server with a store of a small trace, and a client that is its owner."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.results: list[dict[str, Any]] = []
        tokens = Tokens()
        library = Library(store, self.run)
        self.guard = Guard(tokens, Audit(), Metrics())
        given = answers.Answers(library, lambda uid: False, self.guard.held)
        trace = TraceServicer(library, Audit(), given)
        query = QueryServicer(library, given)
        servicers = {
            "profd.v1.TraceService": (trace_pb2_grpc.add_TraceServiceServicer_to_server, trace),
            "profd.v1.CaptureService": (capture_pb2_grpc.add_CaptureServiceServicer_to_server, Captures()),
            "profd.v1.QueryService": (query_pb2_grpc.add_QueryServiceServicer_to_server, query),
        }
        self.server = RpcServer(folder / "s", self.guard, servicers)
        self.metadata = (("profd-token", tokens.issue(ANN)),)
        self.channel = grpc.aio.insecure_channel(f"unix:{folder / 's'}", options=OPTIONS)
        self.averages = trace_pb2_grpc.TraceServiceStub(self.channel).KeyAverages

    async def run(self, job: str, args: dict[str, Any], fds: Any = (), on_progress: Any = None) -> dict[str, Any]:
        self.results.append(await run_here(job, args, fds))
        return self.results[-1]

    async def top(self) -> list[dict[str, Any]]:
        asked = query_pb2.QueryRequest(name="top", scope=query_pb2.Scope(trace=FIRST))
        stub = query_pb2_grpc.QueryServiceStub(self.channel)
        parts = [part async for part in stub.Query(asked, metadata=self.metadata)]
        found: list[dict[str, Any]] = json.loads(b"".join(part.data for part in parts[1:]))
        return found


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    store = await stored(tmp_path / "state")
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        rig = Rig(Path(name), store)
        await rig.server.open(lambda file: file.chmod(0o600))
        yield rig
        await rig.channel.close(None)
        await rig.server.close(0)
    store.close()


async def test_rows_come_as_bytes_and_no_worker_sends_them_as_a_value(rig: Rig) -> None:
    rows = await rig.top()
    assert len(rows) > 3
    found = (await rig.averages(trace_pb2.KeyAveragesRequest(id=FIRST), metadata=rig.metadata)).rows
    assert [row.name for row in found] == [row["name"] for row in rows]
    assert rig.results == [{}, {}]


async def test_key_averages_has_so_many_rows_and_says_how_else_to_ask(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "KEY_AVERAGES_ROWS_MAX", 2)
    monkeypatch.setattr(traces, "_ROWS_ASKED", 3)
    for limit in (0, 3):
        with pytest.raises(grpc.aio.AioRpcError, match=r"more than 2 rows.*or ask QueryService") as said:
            await rig.averages(trace_pb2.KeyAveragesRequest(id=FIRST, limit=limit), metadata=rig.metadata)
        assert said.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert len((await rig.averages(trace_pb2.KeyAveragesRequest(id=FIRST, limit=2), metadata=rig.metadata)).rows) == 2
    assert len(await rig.top()) > 3


async def test_an_answer_has_so_many_bytes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "KEY_AVERAGES_BYTES_MAX", 1000)
    monkeypatch.setattr(answers, "ANSWER_BYTES_MAX", 1000)
    with pytest.raises(grpc.aio.AioRpcError, match="more than 1000 bytes, the limit; give a `limit`"):
        await rig.averages(trace_pb2.KeyAveragesRequest(id=FIRST), metadata=rig.metadata)
    with pytest.raises(grpc.aio.AioRpcError, match="more than 1000 bytes, the limit; ask for fewer rows"):
        await rig.top()


class Megabytes:
    """A library whose answers have so many."""

    async def answer(self, asked: Any, fd: int) -> None:
        """`asked`: the number."""
        out = os.dup(fd)
        await asyncio.to_thread(_written, out, asked * MiB)


def _written(fd: int, size: int) -> None:
    with open(fd, "wb") as file:
        file.write(bytes(size))


async def test_what_a_user_leaves_unread_counts_until_its_call_ends() -> None:
    library: Any = Megabytes()
    made: Any = answers.Answers(library, lambda uid: False)
    done, read = asyncio.Semaphore(0), asyncio.Event()

    async def ask(uid: int, size: int) -> int:
        callers.enter(Caller(uid=uid, gid=uid, user=f"u{uid}", admin=False, pid=0))
        answer = await made.whole(size, 1 << 40, "")
        done.release()
        await read.wait()
        return len(answer)

    most = limits.ANSWERS_HELD_MIB_PER_UID // 64
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        unread = [group.create_task(ask(1, 64)) for _ in range(most)]
        for _ in unread:
            await done.acquire()
        with pytest.raises(Refused, match="256 of 256 MiB of answers that wait for their readers at once") as refused:
            await asyncio.create_task(ask(1, 1))
        assert (refused.value.kind, refused.value.retry_seconds) == ("answers_held", 1)
        others = [group.create_task(ask(2, 64)), group.create_task(ask(1, 0))]  # a small one holds nothing
        for _ in others:
            await done.acquire()
        read.set()
    assert await asyncio.create_task(ask(1, 64)) == 64 * MiB


@pytest.mark.parametrize("character", ["\0", "\n", '"', "\\", "%", "a", "\x7f", "\u0431", "\u202e", "\U0001f600"])
def test_a_sentence_fits_into_metadata_in_both_of_its_forms(character: str) -> None:
    told = errors.detail(BadInput(character * 10_000))
    message = str(told["message"])
    assert message.endswith(" ...")
    assert len(message) > 200
    # As gRPC encodes it: what is printable stays.
    assert len(quote(message, safe="".join(map(chr, range(32, 127))).replace("%", ""))) <= 3004
    assert len(json.dumps(told)) < 4000


@pytest.mark.parametrize("call", ["ListTraces", "Evictions"])
async def test_lists_count_as_answers(rig: Rig, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    stub = trace_pb2_grpc.TraceServiceStub(rig.channel)
    asked = {"ListTraces": trace_pb2.ListTracesRequest(), "Evictions": trace_pb2.EvictionsRequest(bytes=1)}[call]
    assert (await getattr(stub, call)(asked, metadata=rig.metadata)).ByteSize()
    monkeypatch.setattr(guard, "MiB", 1)
    monkeypatch.setattr(rig.guard.held, "_shares", Shares(replace(calls._HELD, each=4)))
    with pytest.raises(grpc.aio.AioRpcError, match="MiB of answers that wait for their readers") as said:
        await getattr(stub, call)(asked, metadata=rig.metadata)
    assert said.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_what_a_watch_says_counts_until_it_is_read(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = capture_pb2_grpc.CaptureServiceStub(rig.channel).WatchCapture
    monkeypatch.setattr(guard, "MiB", 1)
    monkeypatch.setattr(rig.guard.held, "_shares", Shares(replace(calls._HELD, each=50)))
    one = capture_pb2.Capture(id="c123456789").ByteSize() * guard._OBJECTS
    assert one <= 50 < 2 * one  # one message at a time fits, and no two
    assert len([said async for said in watch(capture_pb2.WatchCaptureRequest(), metadata=rig.metadata)]) == 10
    monkeypatch.setattr(rig.guard.held, "_shares", Shares(replace(calls._HELD, each=one - 1)))
    with pytest.raises(grpc.aio.AioRpcError, match="MiB of answers that wait for their readers") as refused:
        await anext(aiter(watch(capture_pb2.WatchCaptureRequest(), metadata=rig.metadata)))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
