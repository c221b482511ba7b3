"""Calls that are admitted, over a real grpc.aio server: whose, how many, and how long they may say nothing."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from profd import limits
from profd.fairness.shares import Holder, Refused
from profd.rpc import guard as guards
from profd.rpc.calls import CallsByUser
from profd.rpc.guard import Guard
from profd.rpc.server import RpcServer
from profd.telemetry.metrics import Metrics
from profd.trust.caller import Caller
from profd.trust.token import Tokens
from profproto.v1 import capture_pb2, capture_pb2_grpc

from tests.support.ingest import Audit
from tests.support.waiting import eventually

WATCH = "/profd.v1.CaptureService/WatchCapture"
GET = "/profd.v1.CaptureService/GetCapture"


class Captures(capture_pb2_grpc.CaptureServiceServicer):
    """Watches that never end."""

    def __init__(self) -> None:
        self.watched = 0

    async def WatchCapture(self, request: Any, context: Any) -> AsyncIterator[capture_pb2.Capture]:  # noqa: N802
        self.watched += 1
        try:
            await asyncio.Event().wait()
            yield capture_pb2.Capture()
        finally:
            self.watched -= 1

    async def GetCapture(self, request: Any, context: Any) -> capture_pb2.Capture:  # noqa: N802
        return capture_pb2.Capture(id=request.id)

    async def StartCapture(self, request: Any, context: Any) -> capture_pb2.Capture:  # noqa: N802
        return capture_pb2.Capture(id="c")


class Rig:
    def __init__(self, folder: Path) -> None:
        self.captures = Captures()
        self.metrics = Metrics()
        self._tokens = Tokens()
        self.guard = Guard(self._tokens, Audit(), self.metrics)
        add = capture_pb2_grpc.add_CaptureServiceServicer_to_server
        self.server = RpcServer(folder / "s", self.guard, {"profd.v1.CaptureService": (add, self.captures)})
        options = [("grpc.default_authority", "localhost")]
        self.channel = grpc.aio.insecure_channel(f"unix:{folder / 's'}", options=options)
        self.stub = capture_pb2_grpc.CaptureServiceStub(self.channel)

    def who(self, uid: int, admin: bool = False) -> Any:
        return (("profd-token", self._tokens.issue(Caller(uid=uid, gid=uid, user="x", admin=admin, pid=0))),)

    def watch(self, uid: int) -> Any:
        return self.stub.WatchCapture(capture_pb2.WatchCaptureRequest(), metadata=self.who(uid))

    async def get(self, uid: int, admin: bool = False) -> str:
        return str((await self.stub.GetCapture(capture_pb2.CaptureRef(id="c"), metadata=self.who(uid, admin))).id)

    def refusals(self, kind: str) -> float:
        return self.metrics.registry.get_sample_value("profd_refusals_total", {"kind": kind}) or 0.0


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        rig = Rig(Path(name))
        await rig.server.open(lambda file: file.chmod(0o600))
        yield rig
        await rig.channel.close(None)
        await rig.server.close(0)


async def silent() -> AsyncIterator[Any]:
    """A request that never comes."""
    await asyncio.Event().wait()
    yield b""


async def status(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code()


async def test_calls_of_one_user_leave_those_of_others(rig: Rig) -> None:
    watches = [rig.watch(51000) for _ in range(limits.CALLS_PER_UID_MAX)]
    await eventually(lambda: rig.captures.watched == len(watches))
    # WHEN one more comes
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rig.get(51000)
    # THEN it is refused, with what to wait for, and nobody else is
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    (detail,) = [json.loads(value) for key, value in caught.value.trailing_metadata() if key == "profd-error"]
    assert (detail["share"], detail["limit"], detail["use"]) == ("calls", len(watches), len(watches))
    assert detail["retry_s"] > 0
    assert rig.refusals("calls") == 1
    assert [await rig.get(51001), await rig.get(0, admin=True)] == ["c", "c"]
    # AND what has ended is given back
    watches[0].cancel()
    await eventually(lambda: rig.captures.watched < len(watches))
    assert await rig.get(51000) == "c"


@pytest.mark.parametrize("method", [WATCH, GET])
async def test_a_request_that_does_not_come_ends_its_call(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(guards, "RECEIVE_SECONDS", 0.05)
    call = rig.channel.stream_unary(method, None, None)(silent(), metadata=rig.who(51000))
    assert await status(call) is grpc.StatusCode.INVALID_ARGUMENT


async def test_calls_whose_request_does_not_come_are_counted_at_once(rig: Rig) -> None:
    waiting = [rig.channel.stream_unary(GET, None, None)(silent(), metadata=rig.who(51000)) for _ in range(200)]
    ended = [asyncio.ensure_future(status(call)) for call in waiting]
    await eventually(lambda: sum(future.done() for future in ended) == 200 - limits.CALLS_PER_UID_MAX)
    assert {await future for future in ended if future.done()} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert await rig.get(51001) == "c"
    for call in waiting:
        call.cancel()
    await asyncio.gather(*ended, return_exceptions=True)


@pytest.mark.parametrize("sent", [[], [b"\xff" * 20]])
async def test_a_call_without_a_request_is_told_so(rig: Rig, sent: list[bytes]) -> None:
    call = rig.channel.stream_unary(GET, None, None)(iter(sent), metadata=rig.who(51000))
    assert await status(call) is grpc.StatusCode.INVALID_ARGUMENT


async def test_starts_have_a_rate(rig: Rig) -> None:
    def start(uid: int, admin: bool = False) -> Any:
        return rig.stub.StartCapture(capture_pb2.StartCaptureRequest(), metadata=rig.who(uid, admin))

    answers = await asyncio.gather(*(start(51000) for _ in range(60)), return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
    assert refused
    assert {error.code() for error in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert rig.refusals("start_rate") == len(refused)
    assert (await start(51001)).id == "c"
    await asyncio.gather(*(start(0, admin=True) for _ in range(60)))


async def test_who_has_no_token_keeps_nobody_out(rig: Rig) -> None:
    health = health_pb2_grpc.HealthStub(rig.channel)
    watches = [health.Watch(health_pb2.HealthCheckRequest()) for _ in range(limits.UNPROVED_CALLS_MAX)]
    for watch in watches:
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    # WHEN one more comes: THEN it is answered, the oldest ends, and ours are not touched
    answer = await health.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    await eventually(lambda: any(watch.done() for watch in watches))
    (ended,) = [watch for watch in watches if watch.done()]
    assert await ended.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert rig.refusals("unproved_calls") == 1
    assert await rig.get(51000) == "c"


async def test_health_and_reflection_are_as_before(rig: Rig) -> None:
    health = health_pb2_grpc.HealthStub(rig.channel)
    unknown = health.Check(health_pb2.HealthCheckRequest(service="nobody"))
    assert await status(unknown) is grpc.StatusCode.NOT_FOUND
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    call = reflection_pb2_grpc.ServerReflectionStub(rig.channel).ServerReflectionInfo(iter([asked]))
    (answer,) = [answer async for answer in call]
    assert "profd.v1.CaptureService" in {service.name for service in answer.list_services_response.service}


async def test_streams_that_end_at_once_have_a_rate() -> None:
    calls = CallsByUser()

    async def stream() -> None:
        calls.enter("/profd.v1.IngestService/Stream", Holder(1, reserved=False))

    async def again() -> None:
        for _ in range(2 * limits.INGEST_CALLS_PER_UID_MAX):
            await asyncio.create_task(stream())

    with pytest.raises(Refused) as raised:
        await again()
    assert raised.value.kind == "ingest_call_rate"
