"""Bodies that are inflated together are those that each gives by itself, whatever is beside them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import limits
from profd.decode import chunk_bodies
from profd.decode.chunk_bodies import bodies, inflate
from profd.decode.chunk_header import CODEC_NONE, CODEC_ZSTD, HEADER, MAGIC, Header

try:
    from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python >= 3.14
except ImportError:
    from backports import zstd

_NO_HEADER = Header._make(HEADER.unpack(MAGIC + bytes(HEADER.size - len(MAGIC))))


def _frame(content: bytes, **options: int) -> bytes:
    known = {getattr(zstd.CompressionParameter, name): value for name, value in options.items()}
    return bytes(zstd.compress(content, options=known))


def _streamed(content: bytes) -> bytes:
    """A frame that does not say how long its content is."""
    compressor = zstd.ZstdCompressor()
    return bytes(compressor.compress(content) + compressor.flush())


def _with_other_size(content: bytes) -> bytes:
    """A frame of fewer than 256 bytes that says to have one less than it has."""
    frame = bytearray(_frame(content))
    frame[5] -= 1
    return bytes(frame)


def _header(codec: int, body_bytes: int) -> Header:
    return _NO_HEADER._replace(codec=codec, body_bytes=body_bytes)


_WAYS: dict[str, Callable[[bytes], tuple[Header, bytes]]] = {
    "frame": lambda content: (_header(CODEC_ZSTD, len(content)), _frame(content)),
    "with a checksum": lambda content: (_header(CODEC_ZSTD, len(content)), _frame(content, checksum_flag=1)),
    "as it is": lambda content: (_header(CODEC_NONE, len(content)), content),
    "of unknown size": lambda content: (_header(CODEC_ZSTD, len(content)), _streamed(content)),
    "header says more": lambda content: (_header(CODEC_ZSTD, len(content) + 1), _frame(content)),
    "header says less": lambda content: (_header(CODEC_ZSTD, len(content) - 1), _frame(content)),
    "frame says less": lambda content: (_header(CODEC_ZSTD, len(content) - 1), _with_other_size(content)),
    "cut": lambda content: (_header(CODEC_ZSTD, len(content)), _frame(content)[:-1]),
    "more behind it": lambda content: (_header(CODEC_ZSTD, len(content)), _frame(content) + b"x"),
    "two frames": lambda content: (_header(CODEC_ZSTD, 2 * len(content)), 2 * _frame(content)),
    "no frame": lambda content: (_header(CODEC_ZSTD, len(content)), content),
    "nothing": lambda content: (_header(CODEC_ZSTD, 0), b""),
    "damaged": lambda content: (
        _header(CODEC_ZSTD, len(content)),
        _frame(content, checksum_flag=1)[:-1] + bytes([_frame(content, checksum_flag=1)[-1] ^ 1]),
    ),
}


@pytest.mark.parametrize("way", _WAYS)
def test_what_is_not_as_its_header_says_is_none_and_its_neighbours_are_whole(way: str) -> None:
    content = bytes(range(200))
    good = (_header(CODEC_ZSTD, len(content)), _frame(content))
    odd = _WAYS[way](content)
    found = list(bodies([(0, *good), (1, *odd), (2, *good)]))
    assert [body for _, _, body in found] == [content, inflate(*odd), content]
    whole = way in ("frame", "with a checksum", "as it is", "of unknown size")
    assert found[1][2] == (content if whole else None)


@given(st.lists(st.tuples(st.sampled_from(sorted(_WAYS)), st.binary(min_size=1, max_size=200)), max_size=12))
def test_property_bodies_are_those_that_each_chunk_gives_by_itself(given_chunks: list[tuple[str, bytes]]) -> None:
    chunks = [(at, *_WAYS[way](content)) for at, (way, content) in enumerate(given_chunks)]
    assert list(bodies(chunks)) == [(at, header, inflate(header, raw)) for at, header, raw in chunks]


def test_few_are_in_memory_at_a_time() -> None:
    content = bytes(limits.CHUNK_BODY_BYTES_MAX // 4)
    read = 0

    def chunks() -> Iterator[tuple[int, Header, bytes]]:
        nonlocal read
        for at in range(100):
            read += 1
            yield at, _header(CODEC_ZSTD, len(content)), _frame(content)

    found = bodies(chunks())
    assert next(found)[2] == content
    assert read == 4


def test_chunks_are_inflated_with_one_context_where_all_is_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_bodies, "inflate", None)
    contents = [zlib.crc32(bytes([at])).to_bytes(4) * 50 for at in range(200)]
    chunks = [(at, _header(CODEC_ZSTD, len(content)), _frame(content)) for at, content in enumerate(contents)]
    assert [body for _, _, body in bodies(chunks)] == contents
