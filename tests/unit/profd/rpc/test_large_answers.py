"""Answers that a trace can make as large as it likes: the daemon passes them on, and parses few rows."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from profd.offline import run_here
from profd.questions.library import Library
from profd.rpc import answers, traces
from profd.rpc.guard import Guard
from profd.rpc.query import QueryServicer
from profd.rpc.server import RpcServer
from profd.rpc.traces import TraceServicer
from profd.store.store import Store
from profd.telemetry.metrics import Metrics
from profd.trust.caller import Caller
from profd.trust.token import Tokens
from profproto.v1 import query_pb2, query_pb2_grpc, trace_pb2, trace_pb2_grpc

from tests.support.ingest import Audit
from tests.support.old_answers import FIRST, stored

ANN = Caller(uid=1001, gid=1001, user="ann", admin=False, pid=0)
OPTIONS = [("grpc.default_authority", "localhost"), ("grpc.max_receive_message_length", -1)]


class Rig:
    """A server with a store of a small trace, and a client that is its owner."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.results: list[dict[str, Any]] = []
        tokens = Tokens()
        library = Library(store, self.run)
        trace = TraceServicer(library, Audit(), lambda uid: False)
        query = QueryServicer(library, lambda uid: False)
        servicers = {
            "profd.v1.TraceService": (trace_pb2_grpc.add_TraceServiceServicer_to_server, trace),
            "profd.v1.QueryService": (query_pb2_grpc.add_QueryServiceServicer_to_server, query),
        }
        self.server = RpcServer(folder / "s", Guard(tokens, Audit(), Metrics()), servicers)
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
