"""The XSpace of a profiler server's answer, into a file without another copy: protobuf's parser would make two.

An answer has half a GiB at most, several come at once, and gRPC has held each three times when it is here
(docs/security.md). So only the fields of the outermost message are looked at, and nothing is taken apart.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from profproto.profiler import profiler_pb2 as pb

from profd.sources.jax.service import Failure, ServiceFailed

_FIELDS_MAX: Final = 1024  # of an answer, which has two; each costs the daemon a step of Python
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}
_VARINT_BYTES_MAX: Final = 10


def write(answer: bytes, path: Path) -> int:
    """Keep the XSpace of a serialised ProfileResponse; its bytes, 0 (and no file) if it holds no events.

    Raises ServiceFailed where it is none, and OSError.
    """
    with memoryview(answer) as view:
        xspace = _xspace(view)
        if not xspace:
            return 0
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb", buffering=0) as file:
            left = view[xspace.start : xspace.stop]
            while left:
                left = left[file.write(left) :]
        return len(xspace)


def _xspace(answer: memoryview) -> range:
    """Where it lies, empty where there are no events. Of a field that comes twice the last one is meant."""
    at, found, is_empty = 0, range(0), False
    for _ in range(_FIELDS_MAX):
        if at == len(answer):
            return range(0) if is_empty else found
        tag, at = _varint(answer, at)
        number, kind = tag >> 3, tag & 7
        value = _SIZES.get(kind, 0)
        if kind in (_VARINT, _LENGTH):
            value, at = _varint(answer, at)
        elif not value:
            raise _foreign()
        end = at if kind == _VARINT else at + value
        if end > len(answer) or not number:
            raise _foreign()
        if (number, kind) == (pb.ProfileResponse.XSPACE_FIELD_NUMBER, _LENGTH):
            found = range(at, end)
        elif (number, kind) == (pb.ProfileResponse.EMPTY_TRACE_FIELD_NUMBER, _VARINT):
            is_empty = value != 0
        at = end
    raise _foreign()


def _varint(answer: memoryview, at: int) -> tuple[int, int]:
    """The number, and where it ends."""
    value = 0
    for place, byte in enumerate(answer[at : at + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise _foreign()


def _foreign() -> ServiceFailed:
    return ServiceFailed(Failure.OTHER, "its answer is not a ProfileResponse")
