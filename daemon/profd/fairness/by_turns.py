"""A few places at once for what is short and costs the host much; who waits for one is served by users in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from profd.fairness.turns import Turns


class ByTurns:
    """`places` are held at once, and a second passes `pause_seconds` after another. Used on the event loop's thread."""

    def __init__(self, places: int, pause_seconds: float = 0.0) -> None:
        self._free = places
        self._pause_seconds = pause_seconds
        self._pausing: asyncio.TimerHandle | None = None
        self._waiting: Turns[asyncio.Future[None]] = Turns()

    @property
    def free(self) -> int:
        """Places that nobody holds."""
        return self._free

    async def get(self, uid: int) -> Callable[[], None]:
        """A place, when it is this user's turn. To be let go with what is returned, which may be repeated."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(uid, waiter)
        self._hand_out()
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self._put()
            raise
        return _once(self._put)

    def _put(self) -> None:
        self._free += 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self._free and self._pausing is None:
            waiter = self._next()
            if waiter is None:
                return
            self._free -= 1
            waiter.set_result(None)
            if self._pause_seconds:
                self._pausing = asyncio.get_running_loop().call_later(self._pause_seconds, self._go_on)

    def _go_on(self) -> None:
        self._pausing = None
        self._hand_out()

    def _next(self) -> asyncio.Future[None] | None:
        """The next one that still waits."""
        while (waiter := self._waiting.take()) is not None and waiter.done():
            pass
        return waiter


def _once(let_go: Callable[[], None]) -> Callable[[], None]:
    held = [let_go]

    def release() -> None:
        if held:
            held.pop()()

    return release
