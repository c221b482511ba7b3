"""What can go wrong, as types.

    ProfdError
     +- BadInput          a file, message or argument that is not what it must be
     |   +- BadTrace      a trace file that cannot be decoded (names offset or event)
     +- NotFound          no such trace, capture or process
     +- Denied            the caller may not
     +- Unavailable       switched off, draining, or the wrong version
     +- Exhausted         a named limit, quota or the disk
     |   +- DiskFull      the filesystem has too little left
     +- JobFailed         a worker was of no use; the reason says how
         +- WorkerDied    it died or was killed

Each carries the gRPC status name and the exit code of `profctl` it maps to.
Messages say what happened, to what, and what to do next.
"""

from __future__ import annotations

from typing import ClassVar


class ProfdError(Exception):
    """Base of all of them; str() is a sentence for a person."""

    status: ClassVar[str] = "INTERNAL"
    exit_code: ClassVar[int] = 1


class BadInput(ProfdError):
    """The caller's input is not what it must be."""

    status = "INVALID_ARGUMENT"
    exit_code = 2


class BadTrace(BadInput):
    """A trace file that cannot be decoded; `offset` is the byte, or -1."""

    status = "DATA_LOSS"
    exit_code = 1

    def __init__(self, message: str, offset: int = -1) -> None:
        super().__init__(message)
        self.offset = offset


class NotFound(ProfdError):
    """No such trace, capture or process."""

    status = "NOT_FOUND"
    exit_code = 3


class Denied(ProfdError):
    """The caller may not do this."""

    status = "PERMISSION_DENIED"
    exit_code = 4


class Unavailable(ProfdError):
    """The daemon cannot serve this now: switched off or draining."""

    status = "FAILED_PRECONDITION"
    exit_code = 1


class InUse(Unavailable):
    """Somebody else works on it, for a moment: the same again works later."""

    exit_code = 5


class Exhausted(ProfdError):
    """A named limit, a quota or the disk."""

    status = "RESOURCE_EXHAUSTED"
    exit_code = 5


class DiskFull(Exhausted):
    """The filesystem has too little left for what was to be written."""


class JobFailed(ProfdError):
    """A worker died, was killed or ran out of its limits; only this job is lost."""


class WorkerDied(JobFailed):
    """The worker was ended from outside, or by a fault of its own: another one may manage."""
