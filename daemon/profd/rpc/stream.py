"""From a job that writes to a descriptor to a stream of chunks, with back-pressure all the way.

The pipe holds a bounded amount; when it is full the worker waits, when the
client does not take a chunk the pipe stays full. A client that takes nothing
for long loses its stream, because it holds a worker meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Final

from profd.errors import Exhausted
from profd.limits import RPC_CHUNK_BYTES

STALL_SECONDS: Final = 60.0  # without the client taking a chunk


class Pipe:
    """A pipe whose reading end belongs to the event loop."""

    def __init__(self, capacity_bytes: int = RPC_CHUNK_BYTES) -> None:
        self._reader, self.writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reader, False)
        # Fewer, larger chunks; the default of 64 kB stays where the user's quota of pipes is used up.
        with contextlib.suppress(OSError):
            fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, capacity_bytes)

    async def read(self) -> bytes:
        """What is there, at most RPC_CHUNK_BYTES; empty when every writer has closed."""
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
        os.close(self._reader)

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._reader, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._reader)


async def streamed(
    produce: Callable[[int], Coroutine[Any, Any, object]], stall_seconds: float = STALL_SECONDS
) -> AsyncGenerator[bytes, None]:
    """What `produce(fd)` writes, in chunks, then whatever it raises.

    Closing the generator early cancels it. Raises Exhausted when nobody takes
    a chunk for `stall_seconds`.
    """
    pipe = Pipe()
    loop = asyncio.get_running_loop()
    task = loop.create_task(produce(pipe.writer))
    task.add_done_callback(lambda _task: pipe.close_writer())
    stalled = False

    def stall() -> None:
        nonlocal stalled
        stalled = True
        task.cancel()

    try:
        while chunk := await pipe.read():
            timer = loop.call_later(stall_seconds, stall)
            try:
                yield chunk
            finally:
                timer.cancel()
            if stalled:
                raise Exhausted(f"nothing was read from this stream for {stall_seconds:g} s, so it was given up")
        await task
    finally:
        task.cancel()
        await asyncio.wait({task})
        pipe.close()
