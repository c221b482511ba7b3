"""`watch_host` over a real server and channel: its lines, whom they are of, and readers that do not read."""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from profd import limits
from profd.capture.host_watch import HostWatch
from profd.capture.manager import CaptureManager
from profd.model.capture import Phase
from profd.questions.library import Library
from profd.rpc.answers import Answers
from profd.rpc.guard import Guard
from profd.rpc.live import live
from profd.rpc.query import QueryServicer
from profd.rpc.server import RpcServer
from profd.targets.process import Process
from profd.telemetry.metrics import Metrics
from profd.trust.caller import Caller
from profd.trust.token import Tokens
from profproto.v1 import query_pb2 as pb
from profproto.v1 import query_pb2_grpc

from tests.support.captures import ALICE, BOB, LONG, AuditList, FakeTable, Rig, process, request
from tests.support.waiting import eventually

WATCH = pb.QueryRequest(name="watch_host", scope=pb.Scope(host=True))


@dataclass
class Served:
    """A daemon's watches behind a real socket."""

    rig: Rig
    manager: CaptureManager
    watch: HostWatch
    tokens: Tokens
    stub: Any

    def metadata(self, caller: Caller) -> tuple[tuple[str, str], ...]:
        """Of a token of no process: nothing is to be asked of the machine's."""
        return (("profd-token", self.tokens.issue(replace(caller, pid=0))),)

    @asynccontextmanager
    async def lines(self, caller: Caller) -> AsyncIterator[AsyncIterator[Any]]:
        """What this caller is told, line by line."""
        call = self.stub.Query(WATCH, metadata=self.metadata(caller))

        async def parsed() -> AsyncGenerator[Any, None]:
            rest = b""
            async for part in call:
                rest += part.data
                *whole, rest = rest.split(b"\n")
                for line in whole:
                    yield json.loads(line)

        async with asyncio.timeout(LONG), aclosing(parsed()) as lines:
            yield lines
        call.cancel()


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    for name in ("LIVE_SECONDS", "LIVE_LOOK_SECONDS"):
        monkeypatch.setattr(limits, name, 0.001)
    for name in ("LIVE_CORES", "LIVE_LOOK_CORES"):
        monkeypatch.setattr(limits, name, 1e9)
    rig = Rig(tmp_path, FakeTable([process(100, rank=3), process(102, uid=51001, user="bob")]))
    tokens = Tokens()
    async with rig.running() as manager:
        watch = live(manager)
        library: Any = Library.__new__(Library)  # no trace is asked
        add = query_pb2_grpc.add_QueryServiceServicer_to_server
        with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
            guard = Guard(tokens, AuditList(), Metrics())
            servicer = QueryServicer(library, Answers(library, lambda uid: False), watch)
            server = RpcServer(Path(name) / "s", guard, {"profd.v1.QueryService": (add, servicer)})
            await server.open(lambda file: file.chmod(0o600))
            async with grpc.aio.insecure_channel(f"unix:{Path(name) / 's'}") as channel:
                yield Served(rig, manager, watch, tokens, query_pb2_grpc.QueryServiceStub(channel))
            await server.close(0)


async def test_lines_are_those_of_commands(served: Served) -> None:
    async with served.lines(ALICE) as lines:
        first = await anext(lines)
        assert first["whole"]
        (row,) = first["processes"]
        assert (row["pid"], row["rank"], row["state"], row["capture"]) == (100, 3, "ready", None)
        record = await served.manager.start(ALICE, request(100, seconds=2.0))
        capture = await _capture(lines, "recording")
        assert (capture["capture"], capture["owner"], capture["duration_ns"]) == (record.id, "alice", 2_000_000_000)
        (target,) = capture["targets"]
        assert (target["pid"], target["doing"], target["waterfall"]) == (100, "the window is open", [])
        assert [one["state"] for one in target["passed"]] == ["requested", "armed", "recording"]
        times = [one["at_ns"] for one in target["passed"]]
        assert times == sorted(times)
        assert record.created_ns <= times[0]

        recorded = served.rig.source.with_file(100, waterfall=[Phase("window", 2_000_000_000)])
        served.rig.source.finish(100, recorded)
        (target,) = (await _capture(lines, "stored"))["targets"]
        assert (target["trace"], target["passed"], target["doing"]) == ("t1", [], None)
        assert target["waterfall"] == [{"name": "window", "duration_ns": 2_000_000_000}]


async def test_another_user_is_told_of_its_own_alone(served: Served) -> None:
    await served.manager.start(ALICE, request(100))
    await served.rig.source.started(100)
    async with served.lines(BOB) as lines:
        first = await anext(lines)
        assert [row["pid"] for row in first["processes"]] == [102]
        await served.manager.start(BOB, request(102))
        capture = await _capture(lines, "recording")
        assert [target["pid"] for target in capture["targets"]] == [102]


async def test_long_texts_and_many_targets_are_cut(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIVE_TARGETS_MAX", 1)
    long = "x" * 5000
    served.rig.table.processes |= {pid: process(pid, command=long) for pid in (110, 111)}
    async with served.lines(ALICE) as lines:
        rows = {row["pid"]: row for row in (await anext(lines))["processes"]}
        assert len(rows[110]["command"]) == limits.LIVE_TEXT_CHARACTERS_MAX
        await served.manager.start(ALICE, request(110, 111))
        capture = await _capture(lines, "recording")
        (target,) = capture["targets"]
        assert (capture["targets_left_out"], len(target["command"])) == (1, limits.LIVE_TEXT_CHARACTERS_MAX)


async def test_a_client_that_goes_is_watched_for_no_more(served: Served) -> None:
    async with served.lines(ALICE) as lines:
        await anext(lines)
        assert served.watch.watched == 1
    await eventually(lambda: served.watch.watched == 0)


async def test_a_client_that_does_not_read_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIVE_STALL_SECONDS", 0.05)
    names = itertools.count()

    def always_others() -> list[Process]:
        name = f"{next(names)}{'y' * limits.LIVE_TEXT_CHARACTERS_MAX}"
        return [process(pid, command=name) for pid in range(1000, 1500)]

    monkeypatch.setattr(served.rig.table, "snapshot", always_others)
    call = served.stub.Query(WATCH, metadata=served.metadata(ALICE))
    await call.read()  # the header; a connection holds some MB of the rest
    await eventually(lambda: next(names) > 2)
    await eventually(lambda: served.watch.watched == 0)
    call.cancel()


async def _capture(lines: AsyncIterator[Any], state: str) -> Any:
    """The first capture that is told to be at this state."""
    async for line in lines:
        for capture in line["captures"]:
            if capture["state"] == state:
                return capture
    raise AssertionError(f"no capture was {state}")
