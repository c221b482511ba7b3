"""Calls that have no limit and cost something: calls of one user come one after the other."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary


class InTurn:
    """A lock for each user, kept while somebody has it or waits for it. On the event loop."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    def of(self, uid: int) -> asyncio.Lock:
        """The lock of this user."""
        lock = self._locks.get(uid)
        if lock is None:
            lock = self._locks[uid] = asyncio.Lock()
        return lock
