"""What profd knows of a py-spy recording and py-spy's file does not say.

py-spy's times count from an instant that it does not name. The source appends
one line to the file, after py-spy has closed it; the decoder reads that first.

    [{"args":…,"ph":"B",…,"ts":43528}, …]
    {"profd_samples":{"pid":…,"first_sample_ns":…,"interval_ns":…,"ended":{"4712":…}}}
"""

from __future__ import annotations

from typing import BinaryIO, Final

import msgspec

TRAILER_BYTES_MAX: Final = 1 << 18
ENDED_THREADS_MAX: Final = 4096
_MARK: Final = b'\n{"profd_samples":'


class Anchor(msgspec.Struct, frozen=True):
    """Times are Unix ns.

    `first_sample_ns` is when the first sample was taken, 0 if not known (times
    then count from the start of the recording). `ended` maps thread ids, as the
    process knows them, to when they were first seen to be gone.
    """

    pid: int = 0
    command: str = ""
    first_sample_ns: int = 0
    interval_ns: int = 10_000_000
    ended: dict[str, int] = {}


class _Trailer(msgspec.Struct, frozen=True):
    profd_samples: Anchor


def encode(anchor: Anchor) -> bytes:
    """The line that is appended to py-spy's file."""
    return b"\n" + msgspec.json.encode(_Trailer(anchor)) + b"\n"


def read(file: BinaryIO, size: int) -> tuple[Anchor, int]:
    """The anchor of a file of `size` bytes, and where py-spy's own text ends. Leaves the file at its start.

    A file without one (py-spy's own, or cut short) has an empty anchor.
    """
    start = max(0, size - TRAILER_BYTES_MAX)
    file.seek(start)
    tail = file.read(size - start)
    file.seek(0)
    place = tail.rfind(_MARK)
    if place < 0:
        return Anchor(), size
    try:
        return msgspec.json.decode(tail[place:], type=_Trailer).profd_samples, start + place
    except msgspec.MsgspecError:
        return Anchor(), start + place
