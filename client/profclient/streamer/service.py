"""The daemon's orders, carried out: one task per arena, until all have ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from profproto.v1 import ingest_pb2_grpc

from profclient import connection, control
from profclient.errors import ClientError
from profclient.streamer.arena import Arena, ArenaTaken
from profclient.streamer.compress import compressor
from profclient.streamer.link import Key, Link, StreamerOrder
from profclient.streamer.rounds import Rounds
from profclient.streamer.stream import POLL_SECONDS_MIN, Ended, Stream

IDLE_SECONDS = 60.0  # without an arena; then the streamer ends, and the daemon starts one when it needs it
DISCONNECTED_SECONDS = 15.0  # without a single ack; then an arena is given up
TAKEN_SECONDS = 5.0  # that a predecessor has to let go of an arena
_RETRY_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)

# What will not get better by asking again.
_FINAL = frozenset(
    (
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.UNIMPLEMENTED,
    )
)
_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class GaveUp(Exception):
    """An arena will not be drained by this streamer; str() is a sentence."""


class Service:
    """The arenas of one streamer."""

    def __init__(self, link: Link, socket_path: Path) -> None:
        self._link = link
        self._path = socket_path
        self._compress = compressor()
        self._drains: dict[Key, _Drain] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._rounds = Rounds()

    async def run(self) -> None:
        """Drain until the daemon is gone, or wants nothing for IDLE_SECONDS."""
        async with grpc.aio.insecure_channel(f"unix:{self._path}", options=_OPTIONS) as channel:
            stub = ingest_pb2_grpc.IngestServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
            try:
                while (order := await self._next()) is not None:
                    self._obey(order, stub)
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                self._link.close()

    async def _next(self) -> StreamerOrder | None:
        while True:
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(self._link.order(), IDLE_SECONDS)
            if not self._drains:
                return None

    def _obey(self, order: StreamerOrder, stub: Any) -> None:
        drain = self._drains.get(order.key)
        if order.do == "drain" and order.fd is not None and drain is None:
            self._begin(order, order.fd, stub)
            return
        if order.fd is not None:
            os.close(order.fd)
        if drain is None:
            return
        if order.do == "lead":
            drain.allow(order.lead)
        elif order.do == "finish":
            drain.finish(target_died=order.target_died)
        elif order.do == "drop":
            del self._drains[order.key]
            drain.task.cancel()

    def _begin(self, order: StreamerOrder, fd: int, stub: Any) -> None:
        key = order.key
        drain = self._drains[key] = _Drain(
            key, fd, stub, self._path, lambda: self._link.say("lead", key), self._drains.__len__, self._rounds
        )
        drain.allow(order.lead)
        drain.task = asyncio.create_task(drain.run(self._compress))
        self._tasks.add(drain.task)
        drain.task.add_done_callback(lambda task: self._ended(drain, key, task))

    def _ended(self, drain: _Drain, key: Key, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        os.close(drain.fd)
        if self._drains.get(key) is drain:
            del self._drains[key]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._link.say("finished", key)
        else:
            self._link.say("failed", key, str(error) if isinstance(error, GaveUp) else repr(error))


class _Drain:
    """One arena, over as many calls as it takes."""

    task: asyncio.Task[None]

    def __init__(
        self,
        key: Key,
        fd: int,
        stub: Any,
        path: Path,
        ask: Callable[[], None],
        arenas: Callable[[], int],
        rounds: Rounds,
    ) -> None:
        self.fd = fd  # closed by the service, when the task has ended: a task that never ran could not
        self._key = key
        self._stub = stub
        self._path = path
        self._arenas = arenas
        self._rounds = rounds
        self._finishing = asyncio.Event()
        self._target_died = False
        self._stream: Stream | None = None
        self._arena: Arena | None = None
        self._lead = 0  # bytes that we may allocate
        self._ask, self._asked = ask, False  # for more; the daemon answers when it has some
        self._acked_at = 0.0
        self._failures = 0  # since the last ack

    def finish(self, *, target_died: bool) -> None:
        """Nothing more will be written to the arena."""
        self._target_died = target_died
        self._finishing.set()
        if self._stream is not None:
            self._stream.wake()

    def allow(self, lead: int) -> None:
        """Allow so many bytes to be allocated ahead of the target."""
        self._lead, self._asked = lead, False
        if self._arena is not None:
            self._arena.allow(lead)

    async def run(self, compress: Callable[[bytes], bytes] | None) -> None:
        """Returns when the daemon has everything. Raises GaveUp."""
        arena = self._arena = await self._opened(compress)
        try:
            arena.allow(self._lead)
            self._acked_at = time.monotonic()
            while True:
                try:
                    await self._call(arena)
                    if not self._target_died:  # or it was only silent, and goes on writing; the dead hold no memory
                        arena.give_back()
                    return
                except (Ended, grpc.RpcError, asyncio.InvalidStateError, ClientError) as error:
                    arena.again()
                    await self._before_retry(error)
        finally:
            self._arena = None
            arena.close()

    async def _opened(self, compress: Callable[[bytes], bytes] | None) -> Arena:
        deadline = time.monotonic() + TAKEN_SECONDS
        while True:
            try:
                arena = Arena(os.dup(self.fd), compress)
            except ArenaTaken:
                if time.monotonic() > deadline:
                    raise GaveUp("another process reads the arena and does not let go of it") from None
                await asyncio.sleep(_RETRY_SECONDS[0])
                continue
            except (ValueError, OSError) as error:
                raise GaveUp(f"the arena cannot be read: {error}") from error
            if arena.key != self._key:
                arena.close()
                raise GaveUp("the arena is another process's, or of another capture")
            return arena

    async def _call(self, arena: Arena) -> None:
        tending = asyncio.create_task(self._tend(arena))
        try:
            await self._converse(arena, tending)
        finally:
            tending.cancel()

    async def _tend(self, arena: Arena) -> None:
        """While a call is made, which takes its time on a busy host, nobody else looks at the arena."""
        while True:
            arena.tend()
            self._looked()
            await asyncio.sleep(POLL_SECONDS_MIN)

    async def _converse(self, arena: Arena, tending: asyncio.Task[None]) -> None:
        # The socket answers at once or not at all; a thread for the case that it does not.
        token, _ = await asyncio.to_thread(control.token, self._path.with_name("control.sock"))
        call = self._stub.Stream(metadata=[("profd-token", token)])

        def looked() -> None:
            tending.cancel()
            self._looked()

        self._stream = Stream(
            call,
            arena,
            self._finishing,
            self._acked,
            lambda: self._target_died,
            looked,
            self._arenas,
            self._rounds,
        )
        try:
            await self._stream.run()
        finally:
            self._stream = None
            call.cancel()

    def _acked(self) -> None:
        self._acked_at = time.monotonic()
        self._failures = 0

    def _looked(self) -> None:
        """Ask for more memory where it would be used; a streamer that got none at first need not ask."""
        if self._lead and not self._asked and self._arena is not None and self._arena.lead_is_short:
            self._asked = True
            self._ask()

    async def _before_retry(self, error: Exception) -> None:
        """Wait a little. Raises GaveUp when that is of no use any more."""
        if isinstance(error, grpc.RpcError):
            translated = connection.translated(error)
            call: Any = error  # every error that grpc raises from a call is a Call as well
            if call.code() in _FINAL:
                raise GaveUp(str(translated)) from error
            error = translated
        if time.monotonic() - self._acked_at > DISCONNECTED_SECONDS:
            raise GaveUp(f"the daemon took nothing for {DISCONNECTED_SECONDS:g} s: {error}") from error
        await asyncio.sleep(_RETRY_SECONDS[min(self._failures, len(_RETRY_SECONDS) - 1)])
        self._failures += 1
