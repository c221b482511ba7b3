"""Exceptions of the store, the journal and the workers as reasons of a capture."""

from __future__ import annotations

import errno
import os
from typing import Final

from profd.errors import BadTrace, DiskFull, Exhausted, JobFailed, ProfdError
from profd.model.capture import Reason

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def reason_of(error: OSError | ProfdError) -> Reason:
    """Why a trace could not be kept."""
    if isinstance(error, BadTrace):
        return Reason.UNREADABLE
    if isinstance(error, JobFailed):
        return Reason.WORKER_DIED
    if isinstance(error, DiskFull):
        return Reason.DISK_FULL
    system = error if isinstance(error, OSError) else error.__cause__
    if isinstance(system, OSError):
        return Reason.DISK_FULL if system.errno in _FULL else Reason.STORE_UNAVAILABLE
    if isinstance(error, Exhausted):
        # Of a worker's error only the sentence reaches us.
        full = any(os.strerror(number) in str(error) for number in _FULL)
        return Reason.DISK_FULL if full else Reason.OVER_LIMIT
    return Reason.STORE_UNAVAILABLE


def sentence(error: OSError | ProfdError, what: str) -> str:
    """The error for a person; `what` names the part where the system's own words would not."""
    if isinstance(error, ProfdError):
        return str(error)
    place = f" ({error.filename})" if error.filename else ""
    return f"{what}: {error.strerror or error}{place}"
