"""The header of an event chunk (docs/wire-format.md), read and checked. Bodies are left to the decoder."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from profd.limits import INGEST_CHUNK_BYTES_MAX, INGEST_CHUNK_EVENTS_MAX

VERSIONS: Final = (1, 1)  # of the wire format: the oldest and the newest that are taken
_MAGIC: Final = 0x31434650
_CODECS: Final = (0, 1)
_CRC_FROM: Final = 16  # what the crc covers begins here
# magic version codec flags | length crc | incarnation stream tid sequence id base | base real error pid | events
# raw slots reserved | epoch
_HEADER: Final = struct.Struct("<IHBBIIQIIQQQqIIIIIIQ")
HEADER_BYTES: Final = _HEADER.size  # 96


class Refusal(StrEnum):
    """Why a chunk is not taken: `IngestRejected.reason`, and the reason of the loss."""

    CRC = "crc"
    HEADER = "header"
    VERSION = "version"
    FOREIGN = "foreign"  # of another process or capture
    TOO_MANY_THREADS = "too_many_threads"
    JOURNAL_FULL = "journal_full"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Where a chunk stands in the bytes it came in, and what its header says."""

    start: int
    end: int
    incarnation: int
    epoch: int
    stream: int
    sequence: int
    events: int
    refusal: Refusal | None = None  # what is wrong with it by itself


def split_untrusted(data: memoryview) -> Iterator[Chunk]:
    """The chunks that stand one after the other in `data`, crcs checked.

    A chunk whose length cannot be believed takes everything after it along:
    nobody knows where the next one would begin.
    """
    at = 0
    while at < len(data):
        chunk = _read(data, at)
        yield chunk
        at = chunk.end


def _read(data: memoryview, at: int) -> Chunk:
    rest = len(data) - at
    if rest < HEADER_BYTES:
        return _unreadable(data, at)
    (magic, version, codec, _, length, crc, incarnation, stream, _, sequence, *_, events, _, _, _, epoch) = (
        _HEADER.unpack_from(data, at)
    )
    if magic != _MAGIC or not HEADER_BYTES <= length <= min(rest, INGEST_CHUNK_BYTES_MAX):
        return _unreadable(data, at)
    end = at + length
    refusal = None
    if zlib.crc32(data[at + _CRC_FROM : end]) != crc:
        refusal = Refusal.CRC
    elif not VERSIONS[0] <= version <= VERSIONS[1]:
        refusal = Refusal.VERSION
    elif codec not in _CODECS or events > INGEST_CHUNK_EVENTS_MAX:
        refusal = Refusal.HEADER
    # What a broken header says of its events is worth nothing; that there was one is sure.
    counted = events if refusal is None or refusal is Refusal.VERSION else 1
    return Chunk(at, end, incarnation, epoch, stream, sequence, min(counted, INGEST_CHUNK_EVENTS_MAX), refusal)


def _unreadable(data: memoryview, at: int) -> Chunk:
    return Chunk(at, len(data), 0, 0, 0, 0, 1, Refusal.HEADER)
