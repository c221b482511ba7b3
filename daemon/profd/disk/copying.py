"""Copies a file that somebody else may still write, truncate or fill with holes: what it holds, and no more than that.

Its size is whatever its owner says and costs them nothing: holes stay holes, what is copied is counted as it is
written, and what comes after the size that was checked is left behind.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from typing import Final

from profd.errors import Exhausted
from profd.limits import PICKUP_PIECES_MAX

_FICLONE: Final = 0x40049409
_PIECE_BYTES: Final = 16 << 20

Room = Callable[[int, int], int]  # (bytes written, bytes wanted at least) -> bytes that may be written. Raises.


def copy(source: int, target: int, size: int, data_max: int, room: Room) -> tuple[int, str]:
    """The first `size` bytes, with their holes; (bytes of data, why these are not all, else empty).

    At most `data_max` bytes of data are copied, and what there is room for. Raises OSError.
    """
    if os.fstat(source).st_blocks * 512 <= data_max and _cloned(source, target, size):
        return os.fstat(target).st_blocks * 512, ""
    copied = allowed = 0
    for number, (begin, end) in enumerate(data_of(source, size)):
        at = begin
        if number >= PICKUP_PIECES_MAX:
            return copied, f"it has more than {PICKUP_PIECES_MAX} holes, which no trace has"
        while at < end:
            want = min(_PIECE_BYTES, end - at, data_max - copied)
            if not want:
                return copied, f"it holds more than {data_max} bytes, the most that is taken of it"
            if copied + want > allowed:
                try:
                    allowed = copied + room(copied, want)
                except Exhausted as error:
                    return copied, str(error)
            done = _copied(source, target, at, want)
            if not done:
                return copied, "somebody cut it off while it was copied"
            at += done
            copied += done
    os.ftruncate(target, size)  # a hole at its end
    return copied, ""


def _cloned(source: int, target: int, size: int) -> bool:
    """Share the blocks, where the filesystem can."""
    # Never by renaming the owner's file: they may keep a descriptor and write on.
    with contextlib.suppress(OSError):
        fcntl.ioctl(target, _FICLONE, source)
        os.ftruncate(target, min(size, os.fstat(target).st_size))
        return True
    return False


def data_of(source: int, size: int) -> Iterator[tuple[int, int]]:
    """Where there is data, within `size`. A filesystem that cannot tell has data everywhere."""
    at = 0
    while at < size:
        try:
            begin = os.lseek(source, at, os.SEEK_DATA)
            end = os.lseek(source, begin, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole from here on
                return
            begin, end = at, size
        if begin >= size or end <= at:
            return
        yield begin, min(end, size)
        at = end


def _copied(source: int, target: int, at: int, want: int) -> int:
    """Bytes copied to the same place: inside the kernel where it can. Raises OSError."""
    with contextlib.suppress(OSError):
        done = os.copy_file_range(source, target, want, at, at)
        if done:  # some filesystems answer 0 instead of refusing
            return done
    data = os.pread(source, min(want, 1 << 20), at)
    written = 0
    while written < len(data):
        written += os.pwrite(target, data[written:], at + written)
    return written
