"""A server whose socket file is removed and made anew."""

from __future__ import annotations

import asyncio
import stat
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from profd.errors import BadInput
from profd.metrics import Metrics
from profd.rpc.guard import Guard
from profd.rpc.server import RpcServer
from profd.trust.caller import Caller
from profd.trust.token import Tokens
from profproto.v1 import trace_pb2, trace_pb2_grpc

from tests.support.ingest import Audit
from tests.support.waiting import eventually

ADA = Caller(uid=1000, gid=100, user="ada", admin=False, pid=0)


class Traces(trace_pb2_grpc.TraceServiceServicer):
    """Answers at once, or (`title`) when the test says so."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def GetTrace(self, request: Any, context: Any) -> trace_pb2.Trace:  # noqa: N802
        if request.id == "slow":
            self.asked.set()
            await self.go.wait()
        return trace_pb2.Trace(id=request.id)


class Rig:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "s"
        self.traces = Traces()
        tokens = Tokens()
        servicer = (trace_pb2_grpc.add_TraceServiceServicer_to_server, self.traces)
        self.server = RpcServer(self.path, Guard(tokens, Audit(), Metrics()), {"profd.v1.TraceService": servicer})
        self._metadata = (("profd-token", tokens.issue(ADA)),)
        self._channels: list[grpc.aio.Channel] = []

    def ask(self, trace: str) -> Any:
        """By a client of its own."""
        options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
        self._channels.append(grpc.aio.insecure_channel(f"unix:{self.path}", options=options))
        stub = trace_pb2_grpc.TraceServiceStub(self._channels[-1])
        return stub.GetTrace(trace_pb2.TraceRef(id=trace), metadata=self._metadata)

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()
        await self.server.close(0)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        rig = Rig(Path(name))
        await rig.server.open(0o600)
        yield rig
        await rig.close()


async def test_calls_of_the_server_before_go_on_and_it_is_let_go_of_with_the_last(rig: Rig) -> None:
    slow = rig.ask("slow")
    await rig.traces.asked.wait()
    rig.path.unlink()
    # WHEN the file is made anew
    await rig.server.open(0o660)
    assert stat.S_IMODE(rig.path.stat().st_mode) == 0o660
    assert len(rig.server._leaving) == 1
    # THEN who comes now is answered, the call that ran still runs, and its server ends with it
    assert (await rig.ask("new")).id == "new"
    rig.traces.go.set()
    assert (await slow).id == "slow"
    await eventually(lambda: not rig.server._leaving)
    # AND takes nothing of the next one with it
    assert (await rig.ask("newer")).id == "newer"
    assert [entry.name for entry in rig.path.parent.iterdir()] == ["s"]


async def test_servers_do_not_pile_up(rig: Rig) -> None:
    for _ in range(5):
        rig.path.unlink()
        await rig.server.open(0o600)
        assert (await rig.ask("x")).id == "x"
    await eventually(lambda: not rig.server._leaving)
    assert (await rig.ask("x")).id == "x"


async def test_a_call_of_the_server_before_ends_when_all_is_closed() -> None:
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        rig = Rig(Path(name))
        await rig.server.open(0o600)
        slow = rig.ask("slow")
        await rig.traces.asked.wait()
        rig.path.unlink()
        await rig.server.open(0o600)
        await rig.server.close(0)
        assert not rig.server._leaving
        with pytest.raises(grpc.aio.AioRpcError):
            await slow
        await rig.close()


async def test_what_somebody_else_has_put_there_is_left_alone(rig: Rig) -> None:
    rig.path.unlink()
    rig.path.write_text("not ours")
    with pytest.raises(BadInput, match="cannot be made"):
        await rig.server.open(0o600)
    assert rig.path.read_text() == "not ours"
    assert [entry.name for entry in rig.path.parent.iterdir()] == ["s"]
    rig.path.unlink()
    await rig.server.open(0o600)
    assert (await rig.ask("x")).id == "x"
