"""Knowing at once that a process has ended."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from profd.errors import Exhausted, NotFound
from profd.kernel.pidfd import end_of
from profd.targets.process import ProcessId

_RETRY_SECONDS: Final = 1.0  # where no descriptor is to be had


class Pidfds(Protocol):
    """The process table's descriptors, which become readable when the process ends."""

    def pidfd(self, process: ProcessId) -> int:
        """NotFound if it has ended, Exhausted if there are no more."""
        ...


class DeathWatch:
    """Waits for the end of processes through their pidfds; nothing polls while there are descriptors."""

    def __init__(self, table: Pidfds, retry_seconds: float = _RETRY_SECONDS) -> None:
        self._table = table
        self._retry_seconds = retry_seconds

    async def __call__(self, process: ProcessId) -> None:
        """Return when the process has ended."""
        fd = await self._pidfd(process)
        if fd is not None:
            await end_of(fd)

    async def _pidfd(self, process: ProcessId) -> int | None:
        """None: it has ended. A live process must not count as dead because the daemon has run out of descriptors."""
        while True:
            try:
                return self._table.pidfd(process)
            except NotFound:
                return None
            except Exhausted:
                await asyncio.sleep(self._retry_seconds)
