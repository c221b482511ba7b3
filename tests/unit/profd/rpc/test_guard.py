"""Errors as statuses and callers from tokens, over a real grpc.aio server and client."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from profd import errors
from profd.kernel import nobody
from profd.rpc.errors import known, status_code
from profd.rpc.guard import Guard
from profd.rpc.server import RpcServer
from profd.telemetry.metrics import Metrics
from profd.trust import caller as callers
from profd.trust.token import Tokens
from profproto.v1 import capture_pb2, capture_pb2_grpc, trace_pb2, trace_pb2_grpc

ADA = callers.Caller(uid=1000, gid=100, user="ada", admin=False, pid=0)


class Traces(trace_pb2_grpc.TraceServiceServicer):
    """Answers with the caller's name, or raises what the test says."""

    error: Exception | None = None

    async def GetTrace(self, request: Any, context: Any) -> trace_pb2.Trace:  # noqa: N802
        if self.error is not None:
            raise self.error
        return trace_pb2.Trace(owner=callers.current().user)

    async def Tree(self, request: Any, context: Any) -> AsyncIterator[trace_pb2.DataChunk]:  # noqa: N802
        yield trace_pb2.DataChunk(data=callers.current().user.encode())
        if self.error is not None:
            raise self.error

    async def Import(self, request: Any, context: Any) -> trace_pb2.ImportResponse:  # noqa: N802
        size = sum([len(chunk.data) async for chunk in request])
        return trace_pb2.ImportResponse(trace=trace_pb2.Trace(bytes=size, owner=callers.current().user))


class Captures(capture_pb2_grpc.CaptureServiceServicer):
    async def StartCapture(self, request: Any, context: Any) -> capture_pb2.Capture:  # noqa: N802
        return capture_pb2.Capture(id="c1")


class Audit:
    def __init__(self) -> None:
        self.lines: list[tuple[str, int, dict[str, object]]] = []

    def write(self, action: str, uid: int, **details: object) -> None:
        self.lines.append((action, uid, details))


class Rig:
    """A server with these servicers, and a client that is `ADA`."""

    def __init__(self, folder: Path) -> None:
        self.traces = Traces()
        self.audit = Audit()
        self.metrics = Metrics()
        tokens = Tokens()
        self.guard = Guard(tokens, self.audit, self.metrics)
        self.server = RpcServer(
            folder / "s",
            self.guard,
            {
                "profd.v1.TraceService": (trace_pb2_grpc.add_TraceServiceServicer_to_server, self.traces),
                "profd.v1.CaptureService": (capture_pb2_grpc.add_CaptureServiceServicer_to_server, Captures()),
            },
        )
        self.metadata = (("profd-token", tokens.issue(ADA)),)
        self.streamer = (("profd-token", tokens.issue(replace(ADA, uid=nobody.STREAMER))),)
        self.channel = grpc.aio.insecure_channel(f"unix:{folder / 's'}")
        self.stub = trace_pb2_grpc.TraceServiceStub(self.channel)

    def count(self, method: str, code: str) -> float:
        return self.metrics.registry.get_sample_value("profd_rpcs_total", {"method": method, "code": code}) or 0.0


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        rig = Rig(Path(name))
        await rig.server.open(lambda file: file.chmod(0o600))
        yield rig
        await rig.channel.close(None)
        await rig.server.close(0)


async def test_every_kind_of_call_knows_its_caller(rig: Rig) -> None:
    assert (await rig.stub.GetTrace(trace_pb2.TraceRef(), metadata=rig.metadata)).owner == "ada"
    chunks = [chunk.data async for chunk in rig.stub.Tree(trace_pb2.TreeRequest(), metadata=rig.metadata)]
    assert chunks == [b"ada"]
    sent = iter([trace_pb2.ImportChunk(data=b"abc")] * 3)
    stored = await rig.stub.Import(sent, metadata=rig.metadata)
    assert (stored.trace.bytes, stored.trace.owner) == (9, "ada")
    assert rig.count("TraceService/GetTrace", "OK") == 1


async def test_a_streamer_sends_events_and_may_nothing_else(rig: Rig) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="a streamer sends events") as caught:
        await rig.stub.GetTrace(trace_pb2.TraceRef(), metadata=rig.streamer)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert [(action, uid) for action, uid, _ in rig.audit.lines] == [("denied", nobody.STREAMER)]


ERRORS = [
    (errors.BadInput("x"), "INVALID_ARGUMENT"),
    (errors.NotFound("x"), "NOT_FOUND"),
    (errors.Denied("x"), "PERMISSION_DENIED"),
    (errors.Unavailable("x"), "FAILED_PRECONDITION"),
    (errors.Exhausted("x"), "RESOURCE_EXHAUSTED"),
    (errors.JobFailed("x"), "INTERNAL"),
    (OSError(errno.ENOSPC, "full", "/x"), "RESOURCE_EXHAUSTED"),
    (PermissionError(errno.EACCES, "denied", "/x"), "INTERNAL"),
    (ValueError("a bug"), "INTERNAL"),
]


@pytest.mark.parametrize(("error", "code"), ERRORS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("method", ["GetTrace", "Tree"])
async def test_errors_are_statuses_with_a_kind(rig: Rig, method: str, error: Exception, code: str) -> None:
    rig.traces.error = error

    async def call() -> None:
        if method == "GetTrace":
            await rig.stub.GetTrace(trace_pb2.TraceRef(), metadata=rig.metadata)
        else:
            [chunk async for chunk in rig.stub.Tree(trace_pb2.TreeRequest(), metadata=rig.metadata)]

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call()
    assert caught.value.code().name == code
    (detail,) = [json.loads(value) for key, value in caught.value.trailing_metadata() if key == "profd-error"]
    assert detail == {"kind": type(known(error)).__name__, "message": caught.value.details()}
    assert rig.count(f"TraceService/{method}", code) == 1


@pytest.mark.parametrize("message", ["ü" * 5000, "a\r\nb\0c", "%" * 9000, "\udc80" * 3000, "\U0001f4a5" * 3000])
async def test_hostile_messages_arrive(rig: Rig, message: str) -> None:
    rig.traces.error = errors.BadInput(message)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rig.stub.GetTrace(trace_pb2.TraceRef(), metadata=rig.metadata)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_denials_are_audited(rig: Rig) -> None:
    rig.traces.error = errors.Denied("not yours")
    with pytest.raises(grpc.aio.AioRpcError):
        await rig.stub.GetTrace(trace_pb2.TraceRef(), metadata=rig.metadata)
    with pytest.raises(grpc.aio.AioRpcError):
        await rig.stub.GetTrace(trace_pb2.TraceRef())
    (first, second) = rig.audit.lines
    assert first == ("denied", 1000, {"method": "/profd.v1.TraceService/GetTrace", "why": "not yours"})
    assert second[:2] == ("denied", -1)


async def test_draining_refuses_new_work_and_answers_the_rest(rig: Rig) -> None:
    await rig.server.refuse()
    captures = capture_pb2_grpc.CaptureServiceStub(rig.channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await captures.StartCapture(capture_pb2.StartCaptureRequest(), metadata=rig.metadata)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert (await rig.stub.GetTrace(trace_pb2.TraceRef(), metadata=rig.metadata)).owner == "ada"
    health = health_pb2_grpc.HealthStub(rig.channel)
    answer = await health.Check(health_pb2.HealthCheckRequest(service="profd.v1.TraceService"))
    assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_unknown_method_is_unimplemented(rig: Rig) -> None:
    call = rig.channel.unary_unary("/profd.v1.TraceService/Nothing", None, None)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"", metadata=rig.metadata)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_oversized_message_is_refused(rig: Rig) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rig.stub.GetTrace(trace_pb2.TraceRef(id="x" * (5 << 20)), metadata=rig.metadata)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_every_error_of_ours_has_a_grpc_code() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ProfdError)]
    assert {status_code(kind("x")) for kind in kinds}


async def test_socket_has_the_mode_it_was_given(rig: Rig) -> None:
    assert os.stat(rig.server.path).st_mode & 0o777 == 0o600
