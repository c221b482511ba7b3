"""Work of which only little may be under way: so much of one user, so much of all; the rest waits its turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


class Few:
    """Places, given in the order in which they were asked for. On the event loop."""

    def __init__(self, each: int, host: int) -> None:
        """`each`: of one user. Who has them waits outside, so that nobody waits behind more than that of another."""
        self._each = each
        self._host = asyncio.Semaphore(host)
        self._users: WeakValueDictionary[int, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def place(self, uid: int) -> AsyncIterator[None]:
        """One of this user's, for the block."""
        own = self._users.get(uid)
        if own is None:
            own = self._users[uid] = asyncio.Semaphore(self._each)
        async with own, self._host:
            yield
