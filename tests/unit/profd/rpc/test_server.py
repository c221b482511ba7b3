"""A server whose socket file is removed and made anew."""

from __future__ import annotations

import asyncio
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
from profd.errors import BadInput, Unavailable
from profd.metrics import Metrics
from profd.rpc.guard import Guard
from profd.rpc.server import RpcServer
from profd.trust.caller import Caller
from profd.trust.token import Tokens
from profproto.v1 import trace_pb2, trace_pb2_grpc

from tests.support.ingest import Audit
from tests.support.waiting import eventually

ADA = Caller(uid=1000, gid=100, user="ada", admin=False, pid=0)


def private(file: Path) -> None:
    """For whoever has bound it."""
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


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
        await rig.server.open(private)
        yield rig
        await rig.close()


async def test_calls_of_the_server_before_go_on_and_it_is_let_go_of_with_the_last(rig: Rig) -> None:
    slow = rig.ask("slow")
    await rig.traces.asked.wait()
    rig.path.unlink()
    # WHEN the file is made anew
    await rig.server.open(lambda file: file.chmod(0o660))
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
        await rig.server.open(private)
        assert (await rig.ask("x")).id == "x"
    await eventually(lambda: not rig.server._leaving)
    assert (await rig.ask("x")).id == "x"


async def test_a_call_of_the_server_before_ends_when_all_is_closed() -> None:
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        rig = Rig(Path(name))
        await rig.server.open(private)
        slow = rig.ask("slow")
        await rig.traces.asked.wait()
        rig.path.unlink()
        await rig.server.open(private)
        await rig.server.close(0)
        assert not rig.server._leaving
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


async def test_who_may_connect_is_said_before_there_is_anything_to_connect_to(rig: Rig) -> None:
    rig.path.unlink()
    seen = []

    def permit(file: Path) -> None:
        seen.append((stat.S_IMODE(file.stat().st_mode), rig.path.exists()))
        file.chmod(0o660)

    await rig.server.open(permit)
    assert seen == [(0o600, False)]
    assert stat.S_IMODE(rig.path.stat().st_mode) == 0o660


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


@pytest.mark.parametrize("steps", [1, 2])
async def test_who_gives_up_opening_leaves_nothing(rig: Rig, steps: int) -> None:
    rig.path.unlink()
    opening = asyncio.ensure_future(rig.server.open(private))
    for _ in range(steps):  # it has bound; it has begun to start
        await asyncio.sleep(0)
    assert [entry.name for entry in rig.path.parent.iterdir()] == ["rpc.1"]
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert list(rig.path.parent.iterdir()) == []
    await rig.server.open(private)
    assert (await rig.ask("x")).id == "x"


async def test_a_directory_that_is_removed_meanwhile(rig: Rig) -> None:
    rig.path.unlink()

    def remove(file: Path) -> None:
        file.unlink()
        rig.path.parent.rmdir()

    with pytest.raises(BadInput, match=r"cannot be made: No such file or directory$"):
        await rig.server.open(remove)
    rig.path.parent.mkdir()
    await rig.server.open(private)
    assert (await rig.ask("x")).id == "x"


async def test_a_directory_without_hard_links(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def hardlink_to(path: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))  # as vfat and some of FUSE answer

    rig.path.unlink()
    monkeypatch.setattr(Path, "hardlink_to", hardlink_to)
    with pytest.raises(BadInput, match="must allow hard links; else choose another --socket"):
        await rig.server.open(private)
    assert list(rig.path.parent.iterdir()) == []


async def test_what_a_killed_daemon_left_is_removed_and_what_is_not_its_own_is_not(rig: Rig) -> None:
    left, file, taken = (rig.path.with_name(f"rpc.{number}") for number in (1, 2, 3))
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(left))
    rig.path.unlink()
    await rig.server.open(private)
    assert not left.exists()

    file.write_text("precious")
    rig.path.unlink()
    with pytest.raises(BadInput, match="not a socket"):
        await rig.server.open(private)
    assert file.read_text() == "precious"

    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(taken))
        other.listen()
        with pytest.raises(Unavailable, match="listens on"):
            await rig.server.open(private)
        assert taken.is_socket()


async def test_what_somebody_else_has_put_there_stays_when_all_is_closed(rig: Rig) -> None:
    rig.path.unlink()
    rig.path.write_text("not ours")
    await rig.server.close(0)
    assert rig.path.read_text() == "not ours"
