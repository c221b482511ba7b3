"""What a capture had to bring, what it brought, and what that means: pure."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

_MAGIC: Final = b"PFC1"
_HEADER_BYTES: Final = 96  # docs/wire-format.md
_EVENTS_AT: Final = 72


@dataclass(slots=True)
class Promise:
    """What must be in a trace of a program that counts.

    `first` to `upto` (exclusive): values that were certainly recorded, none where nobody can tell. `acked`: events that
    a daemon had in its journal when it was killed.
    """

    first: int | None = None
    upto: int | None = None
    acked: int = 0

    def ends(self, count: int) -> None:
        """Values from this one on are not certain."""
        self.upto = count if self.upto is None else min(self.upto, count)

    @property
    def window(self) -> tuple[int, int]:
        """From, and up to (exclusive); empty where nothing is promised."""
        if self.first is None or self.upto is None:
            return 0, 0
        return self.first, max(self.first, self.upto)


@dataclass(frozen=True, slots=True)
class Found:
    """What a trace holds: its events, how many values these have, how many were promised, the least and most."""

    events: int = 0
    distinct: int = 0
    promised: int = 0
    low: int = 0
    high: int = -1


@dataclass(frozen=True, slots=True)
class Verdict:
    """Events that are missing without being counted as lost, and events that came twice."""

    lost: int = 0
    doubled: int = 0


def judged(promise: Promise, found: Found, counted: int) -> Verdict:
    """`counted`: what the capture itself says was lost."""
    first, upto = promise.window
    missing = upto - first - found.promised
    holes = found.high - found.low + 1 - found.distinct
    lost = max(missing - counted, holes - counted, promise.acked - found.events - counted, 0)
    return Verdict(lost, found.events - found.distinct)


def acknowledged(journal: bytes) -> int:
    """Events in the whole chunks of a journal file, by docs/wire-format.md: what its daemon has acknowledged."""
    events = at = 0
    while len(journal) - at >= _HEADER_BYTES and journal[at : at + 4] == _MAGIC:
        length, crc = struct.unpack_from("<II", journal, at + 8)
        chunk = journal[at : at + length]
        if len(chunk) < length or length < _HEADER_BYTES or zlib.crc32(chunk[16:]) != crc:
            break
        events += struct.unpack_from("<I", chunk, _EVENTS_AT)[0]
        at += length
    return events
