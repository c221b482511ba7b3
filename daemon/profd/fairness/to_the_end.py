"""Work that goes on, and is waited for, when who asked for it goes away: a thread cannot be ended."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Its result. A cancelled caller waits for its end: nothing is half done, and what it holds is counted."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # seen; the cancellation is what the caller gets
        raise
