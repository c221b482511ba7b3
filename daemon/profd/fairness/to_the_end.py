"""Work that goes on, and is waited for, when who asked for it goes away: a thread cannot be ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def to_the_end(work: Awaitable[T]) -> T:
    """Its result. A cancelled caller waits for its end: nothing is half done, and what it holds is counted."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # seen; the cancellation is what the caller gets
        raise


async def or_undone(making: Awaitable[T], undo: Callable[[T], None]) -> T:
    """What it has made, for the caller to remove. Of a cancelled caller nobody learns its name: a thread undoes it."""
    running = asyncio.ensure_future(making)
    try:
        return await to_the_end(running)
    except asyncio.CancelledError:
        if running.done() and not running.cancelled() and running.exception() is None:
            await to_the_end(asyncio.to_thread(undo, running.result()))
        raise
