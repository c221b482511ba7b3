"""Columns of a row group without Arrow: pages are decompressed, and decoded natively into the arrays that are wanted.

Arrow takes three times as long for the numbers of a segment, and they must be copied then. What is not as our writer
writes it is left to Arrow, which reads it or says what is wrong with it.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profd import _engine

Array = npt.NDArray[Any]

_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_CODES: Final = (2, 8)  # encodings of a column that has a dictionary
_RLE: Final = 3
_WIDTHS: Final = {"INT32": 4, "INT64": 8, "BYTE_ARRAY": 0}
_CODECS: Final = {"SNAPPY": pa.Codec("snappy"), "ZSTD": pa.Codec("zstd")}
# What decompressing and decoding raise of pages that are not as they were written.
STRANGE: Final = (pa.ArrowException, OSError, ValueError, LookupError, TypeError, MemoryError)


class Strange(ValueError):
    """It is not as our writer writes it."""


@dataclass(frozen=True, slots=True)
class Page:
    """Decompressed."""

    values: int
    encoding: int
    body: Array  # uint8


@dataclass(frozen=True, slots=True)
class Pages:
    """A column of a row group, not decoded. Its methods raise STRANGE."""

    rows: int
    width: int  # bytes of a number; 0: text
    nullable: bool
    dictionary: Page | None
    data: list[Page]

    def numbers(self, out: Array, absent: int) -> int:
        """Decode numbers into `out`, which has a place for each row. How many rows have one."""
        words = None
        if self.dictionary is not None:
            if self.dictionary.values * self.width > len(self.dictionary.body):
                raise Strange
            words = np.empty(self.dictionary.values, dtype=np.int64)
            _unpack(self.dictionary, words, self.width, None, nullable=False, absent=0)
        return self._into(out, self.width, words, absent)

    def words(self) -> pa.Array:
        """The dictionary of text."""
        if self.dictionary is None:
            raise Strange
        offsets, data = _engine.unpack_words(self.dictionary.body, self.dictionary.values)
        return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))

    def codes(self, out: Array, place: Array) -> int:
        """Decode text into `out`: for each row its word's entry of `place` (int64), -1 where it has none."""
        return self._into(out, 4, place, -1)

    def _into(self, out: Array, width: int, words: Array | None, absent: int) -> int:
        at = valid = 0
        for page in self.data:
            rows = out[at : at + page.values]
            valid += _unpack(page, rows, width, words, nullable=self.nullable, absent=absent)
            at += page.values
        return valid


def _unpack(page: Page, out: Array, width: int, words: Array | None, *, nullable: bool, absent: int) -> int:
    return _engine.unpack_numbers(
        page.body, nullable=nullable, encoding=page.encoding, width=width, words=words, out=out, absent=absent
    )


def pages_of(file: pa.NativeFile, chunk: Any, levels: int) -> Pages:
    """The pages of a column of a row group. `chunk`: pyarrow's description of it; `levels`: its most definition levels.

    Raises STRANGE.
    """
    width = _WIDTHS.get(chunk.physical_type)
    codec = chunk.compression
    if width is None or levels > 1 or (codec != "UNCOMPRESSED" and codec not in _CODECS):
        raise Strange
    begin = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    bytes_ = file.read_at(chunk.total_compressed_size, begin)
    dictionary: Page | None = None
    data: list[Page] = []
    for kind, at, packed, unpacked, values, encoding, level_encoding, crc in _engine.page_headers(bytes_):
        page = Page(values, encoding, _body(memoryview(bytes_)[at : at + packed], unpacked, crc, codec))
        if kind == _DICTIONARY_PAGE and dictionary is None and not data:
            dictionary = page
        elif kind == _DATA_PAGE and level_encoding == _RLE and (encoding in _CODES) == (dictionary is not None):
            data.append(page)
        else:
            raise Strange
    if sum(page.values for page in data) != chunk.num_values or (not width and dictionary is None):
        raise Strange
    return Pages(chunk.num_values, width, levels == 1, dictionary, data)


def _body(packed: memoryview, unpacked: int, crc: int, codec: str) -> Array:
    if crc >= 0 and zlib.crc32(packed) != crc:
        raise Strange
    if codec == "UNCOMPRESSED":
        if len(packed) != unpacked:
            raise Strange
        return np.frombuffer(packed, dtype=np.uint8)
    return np.frombuffer(_CODECS[codec].decompress(packed, unpacked), dtype=np.uint8)
