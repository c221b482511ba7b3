"""Waiting for conditions of the outside world, on machines however busy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

PATIENCE_SECONDS: Final = 120.0
_PAUSE_SECONDS: Final = 0.005


def until(condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Until it holds; an assertion error that says what did not."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(_PAUSE_SECONDS)


async def eventually(condition: Callable[[], object]) -> None:
    """Until it holds, letting other tasks run; TimeoutError."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(_PAUSE_SECONDS)
