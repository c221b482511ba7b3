"""A server whose socket file is removed and made anew."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from profd.errors import BadInput
from profd.rpc.guard import Guard
from profd.rpc.server import RpcServer
from profd.telemetry.metrics import Metrics
from profd.trust.caller import Caller
from profd.trust.token import Tokens
from profproto.v1 import trace_pb2, trace_pb2_grpc

from tests.support.ingest import Audit
from tests.support.waiting import eventually

ADA = Caller(uid=1000, gid=100, user="ada", admin=False, pid=0)


def private(file: Path) -> None:
    """For whoever has bound it."""
    file.chmod(0o600)


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
            await channel.close(None)
        await self.server.close(0)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        rig = Rig(Path(name))
        await rig.server.open(private)
        yield rig
        await rig.close()


async def test_calls_go_on_when_the_file_is_made_anew(rig: Rig) -> None:
    slow = rig.ask("slow")
    await rig.traces.asked.wait()
    rig.path.unlink()
    # WHEN the file is made anew
    await rig.server.open(lambda file: file.chmod(0o660))
    assert stat.S_IMODE(rig.path.stat().st_mode) == 0o660
    # THEN who comes now is answered, and the call that ran still runs
    assert (await rig.ask("new")).id == "new"
    rig.traces.go.set()
    assert (await slow).id == "slow"
    assert [entry.name for entry in rig.path.parent.iterdir()] == ["s"]


async def test_nothing_piles_up(rig: Rig) -> None:
    assert (await rig.ask("x")).id == "x"
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        rig.path.unlink()
        await rig.server.open(private)
    assert (await rig.ask("x")).id == "x"
    await eventually(lambda: len(os.listdir("/proc/self/fd")) < before + 10)


async def test_a_call_ends_when_all_is_closed() -> None:
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        rig = Rig(Path(name))
        await rig.server.open(private)
        slow = rig.ask("slow")
        await rig.traces.asked.wait()
        rig.path.unlink()
        await rig.server.open(private)
        await rig.server.close(0)
        with pytest.raises(grpc.aio.AioRpcError):
            await slow
        await rig.close()


async def test_what_somebody_else_has_put_there_is_left_alone(rig: Rig) -> None:
    rig.path.unlink()
    rig.path.write_text("not ours")
    with pytest.raises(BadInput, match="cannot be made"):
        await rig.server.open(private)
    assert rig.path.read_text() == "not ours"
    assert [entry.name for entry in rig.path.parent.iterdir()] == ["s"]
    rig.path.unlink()
    await rig.server.open(private)
    assert (await rig.ask("x")).id == "x"


async def test_who_may_connect_is_said_before_anybody_can(rig: Rig) -> None:
    rig.path.unlink()
    seen = []

    def permit(file: Path) -> None:
        with socket.socket(socket.AF_UNIX) as early:
            seen.append(early.connect_ex(str(file)))
        file.chmod(0o660)

    await rig.server.open(permit)
    assert seen == [errno.ECONNREFUSED]
    assert stat.S_IMODE(rig.path.stat().st_mode) == 0o660


async def test_grpcs_own_socket_has_no_name(rig: Rig) -> None:
    assert [entry.name for entry in rig.path.parent.iterdir()] == ["s"]
    held = Path(f"/proc/self/fd/{rig.server._private}")
    assert str(held.readlink()).endswith("/rpc/s (deleted)")


@pytest.mark.parametrize("error", [BadInput("there is no such group"), PermissionError("not yours")])
async def test_one_that_could_not_be_opened_leaves_nothing_and_is_opened_the_next_time(
    rig: Rig, error: Exception
) -> None:
    def refuse(file: Path) -> None:
        raise error

    rig.path.unlink()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(type(error)):
            await rig.server.open(refuse)
    assert list(rig.path.parent.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) < before + 20
    await rig.server.open(private)
    assert (await rig.ask("x")).id == "x"


@pytest.mark.parametrize("steps", [1, 2, 3])
async def test_who_gives_up_opening_leaves_nothing(steps: int) -> None:
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        rig = Rig(Path(name))
        opening = asyncio.ensure_future(rig.server.open(private))
        for _ in range(steps):  # it has bound; it has begun to start
            await asyncio.sleep(0)
        assert list(rig.path.parent.iterdir()) == []
        opening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await opening
        await rig.server.close(0)
        assert list(rig.path.parent.iterdir()) == []


async def test_what_a_killed_daemon_left_is_removed() -> None:
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        rig = Rig(Path(name))
        left = rig.path.with_name("rpc")
        left.mkdir()
        with socket.socket(socket.AF_UNIX) as killed:
            killed.bind(str(left / "s"))
        await rig.server.open(private)
        assert [entry.name for entry in rig.path.parent.iterdir()] == ["s"]
        await rig.close()


async def test_what_is_not_its_own_stays() -> None:
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        rig = Rig(Path(name))
        taken = rig.path.with_name("rpc")
        taken.write_text("precious")
        with pytest.raises(BadInput, match=r"gRPC's own socket .* cannot be bound"):
            await rig.server.open(private)
        assert taken.read_text() == "precious"
        taken.unlink()
        await rig.server.open(private)
        assert (await rig.ask("x")).id == "x"
        await rig.close()


async def test_what_somebody_else_has_put_there_stays_when_all_is_closed(rig: Rig) -> None:
    rig.path.unlink()
    rig.path.write_text("not ours")
    await rig.server.close(0)
    assert rig.path.read_text() == "not ours"
