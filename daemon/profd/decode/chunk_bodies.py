"""Bodies of event chunks as they were before compression. docs/wire-format.md.

Making a context of zstd asks the processor what it can do, which a virtual machine answers in 16 µs: as long as
inflating a chunk takes. Arrow's stream goes from frame to frame with one, so many are inflated together; those that are
not plainly what their headers say, one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from profd import limits
from profd.decode.chunk_header import CODEC_ZSTD, Header

try:
    from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python >= 3.14
except ImportError:
    from backports import zstd

_OPTIONS: Final = {zstd.DecompressionParameter.window_log_max: limits.CHUNK_WINDOW_LOG_MAX}
_DESCRIPTOR: Final = 4  # where a frame's descriptor stands: RFC 8878, 3.1.1.1.1
_SINGLE_SEGMENT: Final = 0x20  # the window is the content
_TOGETHER: Final = 64
_TOGETHER_BYTES: Final = limits.CHUNK_BODY_BYTES_MAX

_Chunk = tuple[int, Header, bytes]


def bodies(chunks: Iterable[_Chunk]) -> Iterator[tuple[int, Header, bytes | None]]:
    """(offset, header, body) of each (offset, header, body as it travelled); None where `inflate` says so."""
    for group in _groups(chunks):
        found = _inflate_together([chunk for chunk in group if _is_plain(chunk)])
        for at, header, raw in group:
            body = found.get(at)
            yield at, header, inflate(header, raw) if body is None else body


def inflate(header: Header, raw: bytes) -> bytes | None:
    """The body of a chunk; None when it is not what its header says."""
    if header.codec != CODEC_ZSTD:
        return raw if len(raw) == header.body_bytes else None
    decompressor: Any = zstd.ZstdDecompressor(options=_OPTIONS)
    try:
        body: bytes = decompressor.decompress(raw, header.body_bytes + 1)
    except zstd.ZstdError:
        return None
    return body if len(body) == header.body_bytes and decompressor.eof and not decompressor.unused_data else None


def _groups(chunks: Iterable[_Chunk]) -> Iterator[list[_Chunk]]:
    group: list[_Chunk] = []
    size = 0
    for chunk in chunks:
        group.append(chunk)
        size += chunk[1].body_bytes
        if len(group) == _TOGETHER or size >= _TOGETHER_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _is_plain(chunk: _Chunk) -> bool:
    """Whether the body is one frame that says the size of its content, as the header does, and needs no more room."""
    _, header, raw = chunk
    if header.codec != CODEC_ZSTD or not header.body_bytes:
        return False
    try:
        whole = zstd.get_frame_size(raw) == len(raw) and bool(raw[_DESCRIPTOR] & _SINGLE_SEGMENT)
        return whole and zstd.get_frame_info(raw).decompressed_size == header.body_bytes
    except zstd.ZstdError:
        return False


def _inflate_together(chunks: list[_Chunk]) -> dict[int, bytes]:
    """Bodies by offset; none at all if one of them cannot be inflated."""
    if not chunks:
        return {}
    try:
        stream = pa.CompressedInputStream(pa.BufferReader(b"".join(raw for _, _, raw in chunks)), "zstd")
        found = {at: stream.read(header.body_bytes) for at, header, _ in chunks}
        whole = not stream.read(1)  # what a frame has beyond its size, and its checksum, show when it is read on
    except (OSError, pa.ArrowException):
        return {}
    return found if whole and all(len(found[at]) == header.body_bytes for at, header, _ in chunks) else {}
