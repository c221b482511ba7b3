"""What a descriptor of a process tells."""

from __future__ import annotations

import asyncio
import errno
import os
import select


def has_ended(pidfd: int) -> bool:
    """The process of this descriptor has ended, or is a zombie."""
    end = select.poll()
    end.register(pidfd, select.POLLIN)
    return bool(end.poll(0))


def pids_of(pid: int) -> list[int]:
    """The pids of a process in its pid namespaces, from ours to its own, without a look into it. Never waits.

    Empty where the kernel does not say (before Linux 5.5). OSError: there is no such process.
    """
    pidfd = os.pidfd_open(pid)
    try:
        with open(f"/proc/self/fdinfo/{pidfd}", "rb") as file:
            words = next((line.split()[1:] for line in file if line.startswith(b"NSpid:")), [])
    finally:
        os.close(pidfd)
    pids = [int(word) for word in words]
    if pids and pids[0] <= 0:  # it has ended, and was reaped
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    return pids


async def end_of(pidfd: int) -> None:
    """Wait until the process of this descriptor has ended, or is a zombie; the descriptor is closed in any case."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
