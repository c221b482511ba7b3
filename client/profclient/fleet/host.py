"""One host of many: its relay, and the daemon behind it. On one event loop."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf import message_factory
from profproto.v1 import capture_pb2, query_pb2

from profclient.connection import CALL_TIMEOUT_SECONDS, LONG_TIMEOUT_SECONDS, MESSAGE_BYTES_MAX, translated
from profclient.errors import ClientError, UnreachableError
from profclient.fleet.carrier import Carrier
from profclient.fleet.clocks import Clock
from profclient.fleet.link import RelayLink
from profclient.fleet.messages import parsed

CLOCK_LOOKS: Final = 3  # the quickest answer is the least wrong


class Disconnected(UnreachableError):
    """The way to the host has ended, not its daemon: what runs there may go on."""


class Host:
    """A host that can be asked. `reach` first; `leave` at the end, however that went."""

    def __init__(self, name: str, carry: Callable[[], Awaitable[Carrier]], socket: Path) -> None:
        """`carry`: brings a relay there; `socket`: where a local socket may be made that leads to the daemon."""
        self.name = name
        self.clock: Clock | None = None
        self._carry, self._socket = carry, socket
        self._link: RelayLink | None = None
        self._channel: grpc.aio.Channel | None = None
        self._token, self._renew_at = "", 0.0

    async def reach(self, *, clock: bool = False) -> None:
        """Start the relay (anew, after a break), get a token and with `clock` the time. Raises ClientError."""
        await self.leave()
        self._link = await RelayLink.opened(await self._carry(), self._socket)
        self._renew_at = 0.0
        await self._metadata()
        if clock:
            looks = [await self._link.clock() for _ in range(CLOCK_LOOKS)]
            self.clock = min(looks, key=lambda look: look.uncertainty_ns)
        self._channel = grpc.aio.insecure_channel(
            f"unix:{self._socket}",
            options=[
                ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
                ("grpc.default_authority", "localhost"),
                ("grpc.use_local_subchannel_pool", 1),  # after a break a new relay is behind the same path
                ("grpc.enable_http_proxy", 0),
            ],
        )

    async def leave(self) -> None:
        """End the connection and the relay."""
        if self._channel is not None:
            await self._channel.close(None)
            self._channel = None
        if self._link is not None:
            await self._link.close()
            self._link = None

    async def call(self, method: str, request: Any, seconds: float = CALL_TIMEOUT_SECONDS) -> Any:
        """A unary call of the capture service. Raises ClientError; Disconnected where the way there is broken."""
        path, kind = _method(capture_pb2, "CaptureService", method)
        try:
            asked = self._reached().unary_unary(path, _serialised)
            return parsed(await asked(request, timeout=seconds, metadata=await self._metadata()), kind)
        except grpc.RpcError as error:
            raise self._translated(error) from error

    async def watch(self, request: Any) -> AsyncIterator[Any]:
        """States of a capture, until it is over. Raises as `call` does."""
        path, kind = _method(capture_pb2, "CaptureService", "WatchCapture")
        try:
            asked = self._reached().unary_stream(path, _serialised)
            async for state in asked(request, metadata=await self._metadata()):
                yield parsed(state, kind)
        except grpc.RpcError as error:
            raise self._translated(error) from error

    async def ask(self, request: Any) -> AsyncIterator[bytes]:
        """The pieces of an answer to a question. Raises as `call` does."""
        path, kind = _method(query_pb2, "QueryService", "Query")
        try:
            asked = self._reached().unary_stream(path, _serialised)
            async for answer in asked(request, timeout=LONG_TIMEOUT_SECONDS, metadata=await self._metadata()):
                part = parsed(answer, kind)
                if part.WhichOneof("part") == "data":
                    yield part.data
        except grpc.RpcError as error:
            raise self._translated(error) from error

    def _reached(self) -> Any:
        """The channel, whose answers come as bytes. Raises Disconnected."""
        if self._channel is None:
            raise Disconnected("it was closed here")
        return self._channel

    def _translated(self, error: grpc.RpcError) -> ClientError:
        if self._link is None or self._link.why_broken:
            return Disconnected(self._link.why_broken if self._link else "it was closed here")
        call: Any = error
        if call.code() is grpc.StatusCode.UNAUTHENTICATED:
            return Disconnected("profd was restarted there, and knows our token no more")
        return translated(error)

    async def _metadata(self) -> list[tuple[str, str]]:
        if self._link is None:
            raise Disconnected("it was closed here")
        if time.monotonic() >= self._renew_at:
            try:
                self._token, lasts = await self._link.token()
            except UnreachableError as error:
                raise (Disconnected(str(error)) if self._link.why_broken else error) from error
            self._renew_at = time.monotonic() + lasts / 2
        return [("profd-token", self._token)]


def _method(module: Any, service: str, name: str) -> tuple[str, Any]:
    """The path of a method, and the class of its answers."""
    described = module.DESCRIPTOR.services_by_name[service]
    answer = described.methods_by_name[name].output_type
    return f"/{described.full_name}/{name}", message_factory.GetMessageClass(answer)


def _serialised(request: Any) -> bytes:
    data: bytes = request.SerializeToString()
    return data
