"""Memory of messages that were refused, given back to the kernel.

glibc keeps what gRPC's threads have let go of: 48 connections that sent 4 MiB each, over and over, left 347 MB with the
daemon, of which malloc_trim gave back 240. Fewer arenas (MALLOC_ARENA_MAX) changed nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes

from profd.limits import MEMORY_KEPT_SECONDS


class Trimmer:
    """Gives free memory back, some time after a call of `later`."""

    def __init__(self, seconds: float = MEMORY_KEPT_SECONDS) -> None:
        self._seconds = seconds
        self._giving: asyncio.Task[None] | None = None

    def later(self) -> None:
        """Give memory back once in `seconds`, however many calls there are."""
        if self._giving is None or self._giving.done():
            self._giving = asyncio.get_running_loop().create_task(self._give())

    async def _give(self) -> None:
        await asyncio.sleep(self._seconds)
        with contextlib.suppress(OSError, AttributeError):  # a libc without it
            await asyncio.to_thread(ctypes.CDLL(None).malloc_trim, 0)
