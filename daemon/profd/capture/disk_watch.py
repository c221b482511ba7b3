"""Ends captures while they run when the disk runs short, so that they keep what they have.

Most of what sources write has been promised before; what py-spy writes, what workers and other programs do,
has not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from profd.errors import ProfdError
from profd.limits import DISK_LOOK_SECONDS
from profd.model.capture import Reason

_IDLE_LOOKS: Final = 4  # a daemon without captures wakes up more rarely

log = logging.getLogger("profd.capture")


class DiskWatch:
    """Looks from `open` to `close`."""

    def __init__(self, left: Callable[[], int], active: Callable[[], int], end: Callable[[Reason, str], None]) -> None:
        """`left` blocks: bytes that captures may still write. `end` is told when there are none while any is active."""
        self._left = left
        self._active = active
        self._end = end
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Begin to look."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(DISK_LOOK_SECONDS)
            if not self._active():
                await asyncio.sleep(_IDLE_LOOKS * DISK_LOOK_SECONDS)
                continue
            try:
                left = await asyncio.to_thread(self._left)
            except ProfdError as error:
                log.error("the free space is not known", extra={"why": str(error)})
                continue
            if left < 0:
                why = "the disk of profd's state directory runs short (`profctl list`, `profctl rm`)"
                self._end(Reason.DISK_FULL, why)
