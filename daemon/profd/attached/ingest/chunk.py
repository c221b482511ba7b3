"""The header of an event chunk (docs/wire-format.md), read and checked. Bodies are left to the decoder."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from profd.decode.chunk_header import CODEC_NONE, CODEC_ZSTD, CRC_FROM, HEADER, MAGIC, Header
from profd.limits import INGEST_CHUNK_BYTES_MAX, INGEST_CHUNK_EVENTS_MAX

HEADER_BYTES: Final = HEADER.size  # 96
_CODECS: Final = (CODEC_NONE, CODEC_ZSTD)


class Refusal(StrEnum):
    """Why a chunk is not taken: `IngestRejected.reason`, and the reason of the loss."""

    CRC = "crc"
    HEADER = "header"
    VERSION = "version"
    FOREIGN = "foreign"  # of another process or capture
    TOO_MANY_THREADS = "too_many_threads"
    THREADS_OF_USER = "too_many_threads_of_user"  # of all processes of its user together
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
    header = Header._make(HEADER.unpack_from(data, at))
    if header.magic != MAGIC or not HEADER_BYTES <= header.length <= min(rest, INGEST_CHUNK_BYTES_MAX):
        return _unreadable(data, at)
    end = at + header.length
    refusal = None
    if zlib.crc32(data[at + CRC_FROM : end]) != header.crc:
        refusal = Refusal.CRC
    elif not header.of_known_version:
        refusal = Refusal.VERSION
    elif header.codec not in _CODECS or header.events > INGEST_CHUNK_EVENTS_MAX:
        refusal = Refusal.HEADER
    # What a broken header says of its events is worth nothing; that there was one is sure.
    counted = header.events if refusal is None or refusal is Refusal.VERSION else 1
    return Chunk(
        at,
        end,
        header.incarnation,
        header.epoch,
        header.stream,
        header.sequence,
        min(counted, INGEST_CHUNK_EVENTS_MAX),
        refusal,
    )


def _unreadable(data: memoryview, at: int) -> Chunk:
    return Chunk(at, len(data), 0, 0, 0, 0, 1, Refusal.HEADER)
