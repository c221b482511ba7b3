"""A client of the profiler service that JAX and TensorFlow processes carry (`/tensorflow.ProfilerService/...`)."""

from __future__ import annotations

import asyncio
import contextlib
from enum import Enum, auto
from typing import Final

import grpc
from profproto.profiler import profiler_pb2 as pb

from profd.limits import JAX_RESPONSE_BYTES_MAX
from profd.model.text import printable_text
from profd.sources.jax.line import Way, connected

_PATH: Final = "/tensorflow.ProfilerService/"
_NOT_A_TPU: Final = "unimplemented."  # what Monitor says on CPU and GPU; a method that is not there says nothing
_BUSY: Final = "another profiling session active"
_CONTINUOUS_BUSY: Final = "a profiling session is already running"
_TOO_LARGE: Final = "larger than max"
_NOBODY: Final = "nobody answers there any more"
_FOREIGN: Final = "it sends what no server of gRPC does"
_TERMINATE_SECONDS: Final = 10.0
_READY: Final = grpc.ChannelConnectivity.READY
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", JAX_RESPONSE_BYTES_MAX),
    ("grpc.enable_http_proxy", 0),
    # A connection of its own, tried once: what does not speak gRPC is left alone afterwards.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 600_000),
    ("grpc.min_reconnect_backoff_ms", 600_000),
    ("grpc.enable_retries", 0),  # not of themselves, on a new connection
)


class Failure(Enum):
    """Why a call brought nothing."""

    BUSY = auto()  # another profiling session is active in the process
    GONE = auto()  # no connection, or it broke
    TOO_LARGE = auto()
    TIMEOUT = auto()
    UNKNOWN_METHOD = auto()  # this server is older, or leaves it out
    NO_ROOM = auto()  # for its answer, on our disk
    OTHER = auto()  # what the server says of itself


class ServiceFailed(Exception):
    """A call that brought nothing; str() is what the server said, printable."""

    def __init__(self, failure: Failure, said: str) -> None:
        super().__init__(said)
        self.failure = failure


class Service:
    """One connection to `address` (as grpc names it). Close it.

    There is never another: whoever listens there when the connection has ended is somebody else.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._way: Way | None = None
        self._channel: grpc.aio.Channel | None = None
        self._ended: asyncio.Task[None] | None = None  # of the connection, where it was made by `connect`

    async def connect(self, seconds: float) -> None:
        """Make the connection. Raises ServiceFailed."""
        try:
            async with asyncio.timeout(seconds):
                channel = await self._reach()
                state = channel.get_state()
                while state is not _READY:  # one that has ended already is tried again, in vain
                    if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                        raise self._foreign() or ServiceFailed(Failure.GONE, _NOBODY)
                    await channel.wait_for_state_change(state)
                    state = channel.get_state(try_to_connect=True)
        except TimeoutError as error:
            raise ServiceFailed(Failure.GONE, f"it takes no connection within {seconds:g} s") from error
        except OSError as error:
            raise ServiceFailed(Failure.GONE, _NOBODY) from error
        self._ended = asyncio.create_task(channel.wait_for_state_change(_READY), name="jax-connection")

    async def _reach(self) -> grpc.aio.Channel:
        """Raises OSError, ConnectionError where nobody listens."""
        with contextlib.closing(await connected(self._address)) as server:
            self._way = Way()
            self._channel = grpc.aio.insecure_channel(self._way.target, options=_OPTIONS)
            self._channel.get_state(try_to_connect=True)
            await self._way.open(server)
        return self._channel

    async def is_profiler(self, seconds: float) -> bool:
        """Whether this is a profiler server, by one harmless question. Raises ServiceFailed on silence."""
        request = pb.MonitorRequest(duration_ms=1).SerializeToString()
        try:
            async with asyncio.timeout(seconds):
                channel = await self._reach()
        except TimeoutError as error:
            raise ServiceFailed(Failure.TIMEOUT, f"it takes no connection within {seconds:g} s") from error
        except ConnectionError:
            return False
        except OSError as error:
            raise ServiceFailed(Failure.GONE, f"it cannot be asked: {error.strerror}") from error
        try:
            await _method(channel, "Monitor")(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise _failed(error) from error
            return error.code() is grpc.StatusCode.UNIMPLEMENTED and error.details() == _NOT_A_TPU
        return True

    async def profile(self, request: pb.ProfileRequest, seconds: float) -> bytes:
        """Record a window and wait for its ProfileResponse, serialised. Raises ServiceFailed.

        Cancelling this makes the process drop the window, or, when it already
        collects, collect for nobody.
        """
        return await self._told("Profile", request.SerializeToString(), seconds)

    async def terminate(self, session_id: str) -> None:
        """End the window with that id; it keeps what it has. Silent when it cannot be told."""
        request = pb.TerminateRequest(session_id=session_id).SerializeToString()
        with contextlib.suppress(ServiceFailed):  # the window's own call says what is wrong
            await self._told("Terminate", request, _TERMINATE_SECONDS)

    async def start_continuous(self, request: pb.ProfileRequest, seconds: float) -> None:
        """Begin to record without an end. Nothing but `stop_continuous` ends it. Raises ServiceFailed."""
        await self._told("StartContinuousProfiling", request.SerializeToString(), seconds)

    async def snapshot(self, seconds: float) -> bytes:
        """The recording since the snapshot before: a ProfileResponse, serialised. Raises ServiceFailed."""
        return await self._told("GetSnapshot", b"", seconds)

    async def stop_continuous(self) -> None:
        """End recording; what no snapshot has fetched is lost. Silent when it cannot be told, or nothing runs."""
        with contextlib.suppress(ServiceFailed):
            await self._told("StopContinuousProfiling", b"", _TERMINATE_SECONDS)

    async def close(self) -> None:
        """End the connection and every call on it."""
        if self._ended is not None:
            self._ended.cancel()
            await asyncio.gather(self._ended, return_exceptions=True)
        if self._way is not None:
            self._way.close()  # first: gRPC reads on behind its own end
        if self._channel is not None:
            await self._channel.close(None)

    async def _told(self, method: str, request: bytes, seconds: float) -> bytes:
        channel = self._channel
        if channel is None or self._ended is None or self._ended.done() or channel.get_state() is not _READY:
            raise self._foreign() or ServiceFailed(Failure.GONE, "the connection has ended")
        try:
            answer = await _method(channel, method)(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise self._foreign() or _failed(error) from error
        return answer

    def _foreign(self) -> ServiceFailed | None:
        return ServiceFailed(Failure.GONE, _FOREIGN) if self._way is not None and self._way.foreign else None


def _method(channel: grpc.aio.Channel, name: str) -> grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]:
    return channel.unary_unary(_PATH + name, request_serializer=bytes, response_deserializer=bytes)


def _failed(error: grpc.aio.AioRpcError) -> ServiceFailed:
    code, said = error.code(), error.details() or ""
    text = printable_text(said, 200)
    failure = Failure.OTHER
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        failure = Failure.TIMEOUT
    elif _BUSY in said.lower() or _CONTINUOUS_BUSY in said.lower():
        failure = Failure.BUSY
    elif code is grpc.StatusCode.UNIMPLEMENTED:
        failure = Failure.UNKNOWN_METHOD
    elif code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in said:
        failure = Failure.TOO_LARGE
    elif code is grpc.StatusCode.UNAVAILABLE:
        failure = Failure.GONE
    return ServiceFailed(failure, f"{code.name}: {text}")
