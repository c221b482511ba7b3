"""Knowing at once that a process has ended."""

from __future__ import annotations

import asyncio
import os
from typing import Protocol

from profd.errors import NotFound
from profd.targets.process import ProcessId


class Pidfds(Protocol):
    """What the process table gives: a descriptor that becomes readable when the process ends."""

    def pidfd(self, process: ProcessId) -> int:
        """NotFound if it has ended."""
        ...


class DeathWatch:
    """Waits for the end of processes through their pidfds; nothing polls."""

    def __init__(self, table: Pidfds) -> None:
        self._table = table

    async def __call__(self, process: ProcessId) -> None:
        """Return when the process has ended."""
        try:
            fd = self._table.pidfd(process)
        except NotFound:
            return
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(fd, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(fd)
            os.close(fd)
