"""A connection to the daemon: the caller's identity, the stubs, and errors in our own words.

The identity comes from the kernel: `control.sock` beside the gRPC socket reads
our credentials and hands out a short-lived token that every call carries.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from profproto.v1 import capture_pb2_grpc, host_pb2_grpc, query_pb2_grpc, trace_pb2_grpc

from profclient import address
from profclient.control import CONTROL_TIMEOUT_SECONDS, connect, token
from profclient.errors import (
    BusyError,
    ClientError,
    DeniedError,
    Interrupted,
    NotFoundError,
    TimeoutExpired,
    UnreachableError,
    UsageError,
)

CALL_TIMEOUT_SECONDS = 60.0  # of a call that does no long work
LONG_TIMEOUT_SECONDS = 3600.0  # of one that may: queries of large traces, imports
MESSAGE_BYTES_MAX = 64 << 20
# gRPC tries to connect without waiting: where somebody fills the daemon's queue it does so again at this pace.
_AGAIN_MS = 100

_NOT_CONNECTED = "failed to connect"  # gRPC's words for a call that was never sent

_BY_STATUS: dict[grpc.StatusCode, type[ClientError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: UsageError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.PERMISSION_DENIED: DeniedError,
    grpc.StatusCode.UNAUTHENTICATED: DeniedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: BusyError,
    grpc.StatusCode.UNAVAILABLE: UnreachableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: TimeoutExpired,
    grpc.StatusCode.CANCELLED: Interrupted,
}


def translated(error: grpc.RpcError) -> ClientError:
    """Our error for a gRPC one; the daemon's sentence is kept."""
    # Every error that grpc raises from a call is a Call as well; its stubs do not say so.
    call: Any = error
    code = call.code()
    details = call.details() or str(code)
    if code is grpc.StatusCode.UNKNOWN and "Stream removed" in details:
        code = grpc.StatusCode.UNAVAILABLE  # what grpc makes of a peer that died
    if code is grpc.StatusCode.UNAVAILABLE:
        details = f"profd went away ({details}); `profctl doctor` says whether it is back."
    if code is grpc.StatusCode.UNIMPLEMENTED:
        details = (
            f"the profd that runs here is older than this profctl ({details}): use the profctl that came with it, or "
            "have profd restarted with this version. Your own store needs no daemon: `profctl --store DIR`."
        )
    for key, value in call.trailing_metadata() or ():
        if key == "profd-error":
            details = _sentence(value, details)
    return _BY_STATUS.get(code, ClientError)(details)


def _sentence(metadata: str | bytes, otherwise: str) -> str:
    try:
        return str(json.loads(metadata)["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return otherwise


@contextmanager
def our_errors() -> Iterator[None]:
    """Turn gRPC errors that escape the block into ours."""
    try:
        yield
    except grpc.RpcError as error:
        raise translated(error) from error


class Daemon:
    """Stubs of one daemon. Use as a context manager: it owns the channel."""

    def __init__(self, path: Path | None = None) -> None:
        path = path or address.find()
        self.path = path
        self._token, self._renew_at = "", 0.0
        self._metadata()
        self._channel = grpc.insecure_channel(
            f"unix:{path}",
            options=[
                ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
                # Every call carries the token and names no host.
                ("grpc.default_authority", "localhost"),
                ("grpc.initial_reconnect_backoff_ms", _AGAIN_MS),
                ("grpc.max_reconnect_backoff_ms", _AGAIN_MS),
            ],
        )
        self.captures = capture_pb2_grpc.CaptureServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated
        self.traces = trace_pb2_grpc.TraceServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated
        self.questions = query_pb2_grpc.QueryServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated
        self.host = host_pb2_grpc.HostServiceStub(self._channel)  # type: ignore[no-untyped-call]  # generated

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the channel, from any thread: calls that are open end, with Interrupted."""
        self._channel.close()

    def call(self, method: Callable[..., Any], request: Any, timeout: float = CALL_TIMEOUT_SECONDS) -> Any:
        """One unary call. Raises ClientError."""
        once = isinstance(request, Iterator)  # what was sent of that is gone
        with our_errors():
            if once:
                self._await_connection(CONTROL_TIMEOUT_SECONDS)  # otherwise the call says why there is no connection
            try:
                return method(request, timeout=timeout, metadata=self._metadata())
            except grpc.RpcError as error:
                if once or (not self._unknown(error) and not self._let_in(error)):
                    raise
            return method(request, timeout=timeout, metadata=self._metadata())

    def stream(
        self, method: Callable[..., Any], request: Any, timeout: float | None = LONG_TIMEOUT_SECONDS
    ) -> Generator[Any, None, None]:
        """A call with a streamed answer (or request). Raises ClientError while it is read."""
        with our_errors():
            begun = isinstance(request, Iterator)  # what was sent of that is gone: the caller asks again
            try:
                for answer in method(request, timeout=timeout, metadata=self._metadata()):
                    begun = True
                    yield answer
                return
            except grpc.RpcError as error:
                if begun or (not self._unknown(error) and not self._let_in(error)):
                    raise
            yield from method(request, timeout=timeout, metadata=self._metadata())

    def _unknown(self, error: grpc.RpcError) -> bool:
        """Whether the daemon does not know our token: another one gave it. The next call brings a fresh one."""
        call: Any = error
        if call.code() is not grpc.StatusCode.UNAUTHENTICATED:
            return False
        self._renew_at = 0.0
        return True

    def _await_connection(self, seconds: float) -> bool:
        """Whether the daemon lets us in within this time.

        By a call that asks nothing: gRPC's own way keeps a thread, which prints a traceback when the channel is closed.
        """
        check = self._channel.unary_unary("/grpc.health.v1.Health/Check", bytes, bytes)
        try:
            check(b"", timeout=seconds, wait_for_ready=True)
        except grpc.RpcError as error:
            return error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
        return True

    def _let_in(self, error: grpc.RpcError) -> bool:
        """Whether the call was never sent, since the daemon's queue of connections was full, and we are connected now.

        Raises BusyError where nobody is let in for CONTROL_TIMEOUT_SECONDS.
        """
        call: Any = error
        if call.code() is not grpc.StatusCode.UNAVAILABLE or _NOT_CONNECTED not in (call.details() or ""):
            return False
        deadline = time.monotonic() + CONTROL_TIMEOUT_SECONDS
        try:
            with socket.socket(socket.AF_UNIX) as waiting:  # in the kernel's queue, in turn: gRPC only looks for room
                connect(waiting, str(self.path), deadline)
            let_in = self._await_connection(max(0.0, deadline - time.monotonic()))
        except BlockingIOError:
            let_in = False
        except OSError:  # nobody listens there
            return False
        if not let_in:
            raise BusyError(
                f"profd is busy: too many wait to connect to {self.path}, and none was let in for "
                f"{CONTROL_TIMEOUT_SECONDS:g} s. Try again."
            ) from error
        return True

    def _metadata(self) -> list[tuple[str, str]]:
        """The token, a fresh one in good time: a long capture outlives several."""
        if time.monotonic() >= self._renew_at:
            self._token, lasts = token(self.path.with_name("control.sock"))
            self._renew_at = time.monotonic() + lasts / 2
        return [("profd-token", self._token)]
