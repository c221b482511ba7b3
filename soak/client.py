"""A client that asks again while its daemon is away."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import grpc
from profclient import connection, control
from profclient.errors import ClientError
from profproto.v1 import capture_pb2_grpc, trace_pb2, trace_pb2_grpc

PATIENCE_SECONDS: Final = 240.0
_AGAIN_SECONDS: Final = 0.05
_AWAY: Final = frozenset(  # what a call that is under way says of a daemon, or a worker, that is killed
    {
        *(grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNKNOWN),
        *(grpc.StatusCode.INTERNAL, grpc.StatusCode.CANCELLED, grpc.StatusCode.RESOURCE_EXHAUSTED),
        grpc.StatusCode.ABORTED,
    }
)


class Unanswered(Exception):
    """No daemon answered in all that time; str() says what was asked."""


class Refused(Exception):
    """The daemon's answer is an error. `code` is gRPC's."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code = code


class Client:
    """Of one thread. Each connection has a channel of its own: a shared one waits ever longer for the next daemon."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._channel: grpc.Channel | None = None
        self._token, self._until = "", 0.0

    def close(self) -> None:
        """Safe to repeat."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def captures(self, name: str, request: Any, *, once: bool = False) -> Any:
        """A call of CaptureService."""
        return self._ask(lambda channel: getattr(_captures(channel), name), request, name, once)

    def traces(self, name: str, request: Any, *, once: bool = False) -> Any:
        """A call of TraceService; of a stream the list of its messages."""
        return self._ask(lambda channel: getattr(_traces(channel), name), request, name, once)

    def sql(self, trace: str, question: str) -> list[list[Any]]:
        """Rows of an answer."""
        chunks = self.traces("Sql", trace_pb2.SqlRequest(id=trace, sql=question))
        rows: list[list[Any]] = json.loads(b"".join(chunk.data for chunk in chunks))["rows"]
        return rows

    def _ask(self, method: Callable[[grpc.Channel], Any], request: Any, name: str, once: bool) -> Any:
        """`once`: what is under way when the daemon goes is not asked again. `request`: a function makes a stream."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                channel, metadata = self._connected()
                asked = request() if callable(request) else request
                answer = method(channel)(asked, metadata=metadata, timeout=PATIENCE_SECONDS)
                return list(answer) if isinstance(answer, Iterable) else answer
            except ClientError as error:
                problem: Exception = error
            except grpc.RpcError as error:
                call: Any = error
                self.close()
                problem = Refused(call.code(), call.details() or "")
                if once or call.code() not in _AWAY:
                    raise problem from None
            if time.monotonic() > deadline:
                raise Unanswered(f"{name} had no answer within {PATIENCE_SECONDS:.0f} s: {problem}")
            time.sleep(_AGAIN_SECONDS)

    def _connected(self) -> tuple[grpc.Channel, list[tuple[str, str]]]:
        if self._channel is None or time.monotonic() > self._until:
            self.close()
            self._token, lasts = control.token(self._socket.with_name("control.sock"))
            self._until = time.monotonic() + lasts / 2
            options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
            options.append(("grpc.max_receive_message_length", connection.MESSAGE_BYTES_MAX))
            self._channel = grpc.insecure_channel(f"unix:{self._socket}", options=options)
        return self._channel, [("profd-token", self._token)]


def _captures(channel: grpc.Channel) -> Any:
    stub: Any = capture_pb2_grpc.CaptureServiceStub
    return stub(channel)


def _traces(channel: grpc.Channel) -> Any:
    stub: Any = trace_pb2_grpc.TraceServiceStub
    return stub(channel)
