"""A job that somebody looks at again and again while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")


async def watched(job: Coroutine[object, object, T], seconds: float, look: Callable[[], Awaitable[object]]) -> T:
    """The result of a job, with a `look` every so many seconds. An error of `look` ends the job, and is raised."""
    task = asyncio.ensure_future(job)
    try:
        while not (await asyncio.wait({task}, timeout=seconds))[0]:
            await look()
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # seen, whatever is raised instead
