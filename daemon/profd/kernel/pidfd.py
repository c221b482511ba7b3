"""What a descriptor of a process tells."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import select
import struct
from typing import Final

_GET_INFO: Final = 0xC048FF0B  # PIDFD_GET_INFO, of 72 bytes
_INFO: Final = struct.Struct("Q56xI4x")  # what is asked for, or was told; what a core dump would be
_COREDUMP: Final = 1 << 4
_BY_USER: Final = 1 << 2


def has_ended(pidfd: int) -> bool:
    """The process of this descriptor has ended, or is a zombie."""
    end = select.poll()
    end.register(pidfd, select.POLLIN)
    return bool(end.poll(0))


def dumpable(pidfd: int) -> bool | None:
    """Whether the process of this descriptor is (prctl(2), PR_SET_DUMPABLE). Never waits.

    None where the kernel does not say (before Linux 6.16), or the process has no memory any more.
    """
    told = bytearray(_INFO.pack(_COREDUMP, 0))
    try:
        fcntl.ioctl(pidfd, _GET_INFO, told)
    except OSError:
        return None
    known, dump = _INFO.unpack(told)
    return bool(dump & _BY_USER) if known & _COREDUMP else None


def is_dumpable(pid: int) -> bool | None:
    """As `dumpable`, of whichever process has this pid; None, too, where none has."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    try:
        return dumpable(pidfd)
    finally:
        os.close(pidfd)


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
