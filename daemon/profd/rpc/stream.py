"""From a job that writes to a descriptor to a stream of chunks, with back-pressure all the way.

The pipe holds a bounded amount. A full pipe makes the worker wait, and a client
that takes no chunk keeps the pipe full. A client that takes nothing for long
loses its stream, because it holds a worker meanwhile; sooner where other users
wait for a worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, Final

from profd.errors import Exhausted
from profd.limits import RPC_CHUNK_BYTES, STREAM_STALL_SECONDS, STREAM_STALLS_CROWDED_SECONDS

_LOOK_SECONDS: Final = 0.5  # between looks whether a stalled stream is in somebody's way


class Pipe:
    """A pipe whose reading end belongs to the event loop."""

    def __init__(self, capacity_bytes: int = RPC_CHUNK_BYTES) -> None:
        self._reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reader, False)
        # Fewer, larger chunks; the default of 64 kB stays where the user's quota of pipes is used up.
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, capacity_bytes)

    async def read(self) -> bytes:
        """The bytes in the pipe, at most RPC_CHUNK_BYTES; empty when every writer has closed."""
        while True:
            try:
                return os.read(self._reader, RPC_CHUNK_BYTES)
            except BlockingIOError:
                await self._readable()

    def close_writer(self) -> None:
        """Close our copy of the writing end. Safe to repeat."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        """Close both ends."""
        self.close_writer()
        self.close_reader()

    def close_reader(self) -> None:
        """Close the reading end: what writes ends at once. Safe to repeat."""
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._reader, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._reader)


async def streamed(
    produce: Callable[[int], Coroutine[Any, Any, object]],
    stall_seconds: float = STREAM_STALL_SECONDS,
    crowded: Callable[[], bool] = lambda: False,
) -> AsyncGenerator[bytes, None]:
    """The bytes that `produce(fd)` writes, in chunks, then its error, if any.

    Closing the generator early cancels it. Raises Exhausted when nobody takes
    a chunk for `stall_seconds`, or, while `crowded`, chunks have waited for
    STREAM_STALLS_CROWDED_SECONDS together.
    """
    pipe = Pipe()
    task = asyncio.get_running_loop().create_task(produce(pipe.writer))
    task.add_done_callback(lambda _task: pipe.close_writer())
    patience = _Patience(stall_seconds, crowded, task)
    try:
        while chunk := await pipe.read():
            with patience.waiting():
                yield chunk
            patience.check()
        await task
    finally:
        pipe.close_reader()
        task.cancel()
        await asyncio.wait({task})
        pipe.close()


class _Patience:
    """How long a client may leave chunks lying; then the job is cancelled."""

    def __init__(self, seconds: float, crowded: Callable[[], bool], job: asyncio.Task[object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._crowded = crowded
        self._job = job
        self._waited = self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._why = ""

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """While the client is to take a chunk."""
        self._since = self._loop.time()
        self._look_later()
        try:
            yield
        finally:
            self._waited += self._loop.time() - self._since
            if self._timer is not None:
                self._timer.cancel()

    def check(self) -> None:
        """Raise Exhausted once patience has ended."""
        if self._why:
            raise Exhausted(f"{self._why}, so it was given up; ask again, and read faster")

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(min(_LOOK_SECONDS, self._seconds), self._look)

    def _look(self) -> None:
        now = self._loop.time() - self._since
        if now >= self._seconds:
            self._why = f"nothing was read from this stream for {self._seconds:g} s"
        elif self._waited + now >= STREAM_STALLS_CROWDED_SECONDS and self._crowded():
            self._why = (
                f"this stream waited for its reader for {STREAM_STALLS_CROWDED_SECONDS:g} s and others for its worker"
            )
        if self._why:
            self._job.cancel()
        else:
            self._look_later()
