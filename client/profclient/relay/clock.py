"""The kernel's account of this host's clock."""

from __future__ import annotations

import time

_FIELDS = 32  # longs; struct timex of <sys/timex.h> has fewer: the kernel may write no further
_MAXERROR, _STATUS = 3, 5  # the first member is an int and takes a long's room
_UNSYNCHRONISED = 0x0040  # STA_UNSYNC
_TIME_ERROR = 5


def clock() -> bytes:
    """Unix ns, how far that may be off at most (ns), and whether somebody disciplines it: JSON. null: not known."""
    state, error_ns = _discipline()
    synchronised = "null" if state is None else str(state).lower()
    error = "null" if error_ns is None else error_ns
    return f'{{"unix_ns": {time.time_ns()}, "error_ns": {error}, "synchronised": {synchronised}}}'.encode()


def _discipline() -> tuple[bool | None, int | None]:
    import ctypes  # 1 MB, and needed once

    timex = (ctypes.c_long * _FIELDS)()  # mode 0: to read needs no right
    try:
        answer = ctypes.CDLL(None).adjtimex(timex)
    except (AttributeError, OSError):
        return None, None
    if answer < 0:
        return None, None
    unsynchronised = answer == _TIME_ERROR or bool(timex[_STATUS] & _UNSYNCHRONISED)
    return not unsynchronised, None if unsynchronised else timex[_MAXERROR] * 1000
