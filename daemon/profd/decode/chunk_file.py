"""Files of event chunks: where each chunk lies, its header, its body as it travelled. docs/wire-format.md.

A chunk is passed over by its length when its crc does not hold, and looked for
by its magic when there is no header where one should be.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from profd import limits
from profd.decode.chunk_header import CODEC_NONE, CODEC_ZSTD, CRC_FROM, HEADER, MAGIC, Header
from profd.errors import BadTrace

_TIME_MAX: Final = 1 << 61  # 73 years after 1970: no sum of a few such times overflows


@dataclass(slots=True)
class Damage:
    """Bytes and chunks that were passed over while a file was read."""

    lost: dict[str, int]
    truncated: str = ""

    def lose(self, reason: str, count: int = 1) -> None:
        """Count events, or chunks of which it is not known how many events they held."""
        self.lost[reason] = self.lost.get(reason, 0) + count


class ChunkFile:
    """The chunks of a seekable file of `size` bytes."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self.damage = Damage({})

    def chunks(self) -> Iterator[tuple[int, Header, bytes]]:
        """(offset, header, body as it travelled) of each chunk whose crc holds, in file order."""
        at = searches = 0
        while at < self._size:
            length, header, raw = self._at(at)
            if header is not None:
                yield at, header, raw
            if length:
                at += length
                continue
            found = self._next_magic(at + 1) if searches < limits.CHUNK_RESYNCS_MAX else -1
            searches += 1
            if found < 0:
                self._cut(at)
                return
            at = found

    def again(self, at: int, crc: int) -> tuple[Header, bytes]:
        """The chunk of `chunks()` that had this crc, once more. Raises BadTrace if another stands there now."""
        _, header, raw = self._at(at)
        if header is None or header.crc != crc:
            raise BadTrace(
                f"The file was changed while it was read: at byte {at} the chunk that was there is gone. "
                "Read it again when nothing writes to it.",
                at,
            )
        return header, raw

    def _at(self, at: int) -> tuple[int, Header | None, bytes]:
        """What stands there: (its length, its header if it is in order, its body). Length 0: it cannot be believed."""
        whole = self._read(at, HEADER.size)
        if len(whole) < HEADER.size:
            return 0, None, b""
        header = Header._make(HEADER.unpack(whole))
        left = self._size - at
        if header.magic == MAGIC and left < header.length <= limits.INGEST_CHUNK_BYTES_MAX:
            return 0, None, b""  # the tail, or a broken length: what follows tells
        if header.magic != MAGIC or not HEADER.size <= header.length <= limits.INGEST_CHUNK_BYTES_MAX:
            self.damage.lose("header")
            return 0, None, b""
        raw = self._file.read(header.length - HEADER.size)
        if zlib.crc32(raw, zlib.crc32(whole[CRC_FROM:])) != header.crc:
            self.damage.lose("crc")
            follows = self._read(at + header.length, len(MAGIC))
            return header.length if follows in (b"", MAGIC) else 0, None, b""
        problem = _problem(header)
        if problem:
            self.damage.lose(problem)
            return header.length, None, b""
        return header.length, header, raw

    def _read(self, at: int, count: int) -> bytes:
        self._file.seek(at)
        return self._file.read(count)

    def _next_magic(self, at: int) -> int:
        """Where the next chunk may begin; -1: nowhere."""
        step = 1 << 20
        while at < self._size:
            found = self._read(at, step + len(MAGIC) - 1).find(MAGIC)
            if found >= 0:
                return at + found
            at += step
        return -1

    def _cut(self, at: int) -> None:
        left = self._size - at
        self.damage.truncated = f"the last {left} bytes are no whole chunk; the chunks before byte {at} are kept"
        self.damage.lose("truncated")


def _problem(header: Header) -> str:
    """Why the chunk cannot be read, as a reason of a loss; empty if its header is in order."""
    if not header.of_known_version:
        return "version"
    sizes = header.body_bytes <= limits.CHUNK_BODY_BYTES_MAX and header.slots <= limits.CHUNK_SLOTS_MAX
    times = header.base_ns < _TIME_MAX and 0 <= header.real_ns < _TIME_MAX
    codec = header.codec in (CODEC_NONE, CODEC_ZSTD)
    return "" if sizes and times and codec and header.events <= header.slots else "header"
