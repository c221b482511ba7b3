"""Is this descriptor sealed memory, as an arena is? Asked before anything reads from it."""

from __future__ import annotations

import fcntl
import os
import stat
from functools import cache
from typing import Final

from profd.attached.agents.protocol import Hostile
from profd.limits import ARENA_BYTES_MAX, ARENA_BYTES_MIN

# A reader that maps a file somebody can shrink dies of SIGBUS; with F_SEAL_SEAL the seals stay what they are.
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
# With one of these nobody could drain it, nor free what is allocated in it. The second has no name in Python 3.11.
_SEALS_AGAINST_WRITING: Final = fcntl.F_SEAL_WRITE | 0x10


def check_untrusted_arena(fd: int, size: int | None = None) -> int:
    """Its size in bytes. Raises Hostile unless it is a sealed memfd of `size` bytes (None: of any allowed size)."""
    seals, found = _sealed(fd)
    if seals & _SEALS_AGAINST_WRITING:
        raise Hostile("the arena is sealed against writing")
    if size is not None and found != size:
        raise Hostile(f"the arena has {found} bytes where {size} were asked for")
    if not ARENA_BYTES_MIN <= found <= ARENA_BYTES_MAX:
        raise Hostile(f"an arena of {found} bytes")
    return found


def read_untrusted_recall(fd: int, most: int, wanted: int | None = None) -> bytes | int:
    """A copy of all that is in it; its size where that is more than `wanted`.

    Raises Hostile unless it is a sealed memfd of `most` bytes at most.
    """
    _, size = _sealed(fd)
    if size > most:
        raise Hostile(f"an answer of {size} bytes about collectives")
    if wanted is not None and size > wanted:
        return size
    return os.pread(fd, size, 0)  # of memory, whole; whoever writes to it meanwhile writes nonsense


def _sealed(fd: int) -> tuple[int, int]:
    """Seals, and size in bytes."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        found = os.fstat(fd)
    except OSError as error:  # EINVAL: it is no memfd
        raise Hostile(f"the descriptor is no arena ({error.strerror})") from error
    if not stat.S_ISREG(found.st_mode) or seals & _SEALS != _SEALS:
        raise Hostile("the arena is not sealed")
    if found.st_dev != _device():
        raise Hostile("the arena is no ordinary memory, but of huge pages (MFD_HUGETLB)")
    return seals, found.st_size


@cache
def _device() -> int:
    """Of ordinary memfds: all are of one mount of the kernel's.

    Huge pages are taken from a pool when they are touched, seals or not: where it is empty a reader dies of SIGBUS.
    """
    fd = os.memfd_create("profd-device", os.MFD_CLOEXEC)
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)
