"""What a descriptor of a process tells."""

from __future__ import annotations

import asyncio
import os
import select


def has_ended(pidfd: int) -> bool:
    """The process of this descriptor has ended, or is a zombie."""
    end = select.poll()
    end.register(pidfd, select.POLLIN)
    return bool(end.poll(0))


async def end_of(pidfd: int) -> None:
    """Wait until the process of this descriptor has ended, or is a zombie; the descriptor is closed in any case."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
