"""Work of which only little may be under way: so much of one user, so much of all; the rest waits its turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


class Places:
    """The places of one user; to be kept for as long as one of them is taken."""

    def __init__(self, own: asyncio.Semaphore, host: asyncio.Semaphore) -> None:
        self._own = own
        self._host = host

    def locked(self) -> bool:
        """Whether one has to be waited for."""
        return self._own.locked() or self._host.locked()

    async def acquire(self) -> bool:
        """Wait for one; it is the caller's until `release`."""
        await self._own.acquire()
        try:
            return await self._host.acquire()
        except asyncio.CancelledError:
            self._own.release()
            raise

    def release(self) -> None:
        """Give one back."""
        self._host.release()
        self._own.release()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_exception: object) -> None:
        self.release()


class Few:
    """Places, given in the order in which they were asked for. On the event loop."""

    def __init__(self, each: int, host: int) -> None:
        """`each`: of one user. Beyond them a user waits outside, so that nobody waits behind more than those."""
        self._each = each
        self._host = asyncio.Semaphore(host)
        self._users: WeakValueDictionary[int, asyncio.Semaphore] = WeakValueDictionary()

    def of(self, uid: int) -> Places:
        """Places of this user, to take and give back."""
        own = self._users.get(uid)
        if own is None:
            own = self._users[uid] = asyncio.Semaphore(self._each)
        return Places(own, self._host)

    @asynccontextmanager
    async def place(self, uid: int) -> AsyncIterator[None]:
        """One of this user's, for the block."""
        async with self.of(uid):
            yield
