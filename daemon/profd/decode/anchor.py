"""Facts about a py-spy recording that profd knows and py-spy's file lacks.

py-spy's times count from an instant that it does not name. The source appends
one line to the file, after py-spy has closed it; the decoder reads that first.

    [{"args":…,"ph":"B",…,"ts":43528}, …]
    {"profd_samples":{"pid":…,"began_ns":…,"ended_ns":…,"interval_ns":…,"ended":{"4712":…}}}
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import BinaryIO, Final

import msgspec

from profd.model.decodable import decodable

TRAILER_BYTES_MAX: Final = 1 << 18
ENDED_THREADS_MAX: Final = 4096
# The end of py-spy's array: records end with their time, the last ones with that of the writing.
_LAST_TIME: Final = re.compile(rb'"ts":(\d{1,15})\}\]\s*$')
_LAST_BYTES: Final = 64
_MARK: Final = b'\n{"profd_samples":'


class Anchor(msgspec.Struct, frozen=True):
    """Times are Unix ns.

    Two instants fix py-spy's clock, both from below: no sample was taken before `began_ns`, and the time that py-spy
    reads when it starts to write is not before `ended_ns`. 0 where not known. `ended` maps thread ids, as the process
    knows them, to when they were first seen to be gone. Samples after `same_ns` may be another program's (0: they are
    not). py-spy had ended at `gone_ns`. `reader` took the samples.
    """

    pid: int = 0
    command: str = ""
    began_ns: int = 0
    ended_ns: int = 0
    interval_ns: int = 10_000_000
    ended: dict[str, int] = {}
    same_ns: int = 0
    gone_ns: int = 0
    reader: str = "py-spy"

    def zero_ns(self, first_us: int, last_us: int | None) -> int:
        """When py-spy's clock began, given the first and the last time it wrote; 0 if nothing is known.

        The second instant is the better one: it is late by one sample at most,
        the first by however long py-spy took to start.
        """
        if not self.began_ns:
            return 0
        from_start = self.began_ns - first_us * 1000
        if not self.ended_ns or last_us is None:
            return from_start
        return max(from_start, self.ended_ns - last_us * 1000)

    def last_of_same_us(self, last_us: int | None) -> int | None:
        """The time by py-spy's clock until which all it saw was the accepted program's; None: to the end.

        From above: that clock began before the sampling, and had shown `last_us` before py-spy ended.
        """
        if not self.same_ns:
            return None
        began_ns = self.began_ns
        if self.gone_ns and last_us is not None:
            began_ns = min(began_ns, self.gone_ns - last_us * 1000)
        return max(0, self.same_ns - began_ns) // 1000


@decodable
class _Trailer(msgspec.Struct, frozen=True):
    profd_samples: Anchor


def encode(anchor: Anchor) -> bytes:
    """The line that is appended to py-spy's file."""
    return b"\n" + msgspec.json.encode(_Trailer(anchor)) + b"\n"


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a file: the anchor, py-spy's last time in µs, and the place where py-spy's text ends."""

    anchor: Anchor
    last_us: int | None
    text_bytes: int


def read(file: BinaryIO, size: int) -> Tail:
    """Read the end of a file of `size` bytes; leaves the file at its start.

    A file without an anchor (py-spy's own, or cut short) has an empty one.
    """
    start = max(0, size - TRAILER_BYTES_MAX)
    file.seek(start)
    tail = file.read(size - start)
    file.seek(0)
    place = tail.rfind(_MARK)
    if place < 0:
        return Tail(Anchor(), None, size)
    try:
        known = msgspec.json.decode(tail[place:], type=_Trailer).profd_samples
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        known = Anchor()
    last = _LAST_TIME.search(tail[max(0, place - _LAST_BYTES) : place])
    return Tail(known, int(last[1]) if last else None, start + place)
