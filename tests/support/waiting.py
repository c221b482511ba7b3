"""Waiting for conditions of the outside world, on machines however busy. Tests sleep nowhere else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar, TypeVarTuple

PATIENCE_SECONDS: Final = 120.0
BEGIN_SECONDS: Final = 300.0  # for a program to begin: importing torch took more than 120 s at load 30
_PAUSE_SECONDS: Final = 0.005
T = TypeVar("T")
Given = TypeVarTuple("Given")


def until(condition: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS) -> T:
    """Until it holds, and what it gave then; an assertion error that says what did not."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(_PAUSE_SECONDS)
    return found


async def eventually(condition: Callable[[], object]) -> None:
    """Until it holds, letting other tasks run; TimeoutError."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(_PAUSE_SECONDS)


async def comes(attempt: Callable[[], Awaitable[T | None]]) -> T:
    """What an attempt gives at last, for conditions that somebody has to be asked for; TimeoutError."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (found := await attempt()) is None:
            await asyncio.sleep(_PAUSE_SECONDS)
        return found


class Standstill(Generic[*Given, T]):
    """Work of the program that stands still where it is called, once `skip` calls have passed, until it may `go_on`."""

    def __init__(self, work: Callable[[*Given], T], skip: int = 0) -> None:
        self._work = work
        self._skip = skip
        self.reached = threading.Event()
        self._on = threading.Event()

    def __call__(self, *given: *Given) -> T:
        self._skip -= 1
        if self._skip < 0:
            self.reached.set()
            assert self._on.wait(PATIENCE_SECONDS), "whoever has to let it go on waits for it"
        return self._work(*given)

    def go_on(self) -> None:
        """This call, and all after it."""
        self._on.set()
