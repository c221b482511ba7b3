"""Footers of Parquet files, read and written: how a segment gets columns without encoding the others anew.

Two things of ours need that, and pyarrow has no call for either: a column without any value costs pyarrow as much as
one with values (11 ns a row), and is 40 bytes here; and a cell that becomes known late (`fold.py`) costs one column of
one row group. The layout: https://github.com/apache/parquet-format, parquet.thrift.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import BinaryIO, Final

from profd.segments import thrift
from profd.segments.thrift import Items, Struct, Type

MAGIC: Final = b"PAR1"
_TAIL: Final = struct.Struct("<i4s")
_PLAIN, _RLE = 0, 3
_DATA_PAGE: Final = 0
_UNCOMPRESSED: Final = 0
# Field numbers of parquet.thrift.
_SCHEMA, _GROUPS, _ORDERS = 2, 4, 7
_CHUNKS, _GROUP_BYTES, _ROWS, _GROUP_PACKED = 1, 2, 3, 6
_ELEMENT_TYPE, _ELEMENT_NAME = 1, 4
_CHUNK_OFFSET, _CHUNK_META = 2, 3
_PHYSICAL, _PATH, _VALUES, _BYTES, _PACKED, _DATA_AT, _DICTIONARY_AT = 1, 3, 5, 6, 7, 9, 11


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column."""

    name: bytes
    physical: int  # parquet.thrift's Type


class Chunk:
    """A column of a row group: its description, and the file that has its bytes."""

    def __init__(self, column: bytes, source: BinaryIO) -> None:
        self.column = thrift.decode(column)
        self._source = source
        self._meta: Struct = self.column[_CHUNK_META][1]

    @property
    def name(self) -> bytes:
        """The name of the column."""
        (name,) = self._meta[_PATH][1].values
        return bytes(name)

    @property
    def packed(self) -> int:
        """Its bytes in the file."""
        return int(self._meta[_PACKED][1])

    @property
    def unpacked(self) -> int:
        """Its bytes before compression."""
        return int(self._meta[_BYTES][1])

    @property
    def offset(self) -> int:
        """Where it begins: with its dictionary, if it has one."""
        meta = self._meta
        return int(meta[_DICTIONARY_AT][1] if _DICTIONARY_AT in meta else meta[_DATA_AT][1])

    def data(self) -> bytes:
        """Its pages."""
        self._source.seek(self.offset)
        return self._source.read(self.packed)

    def moved(self, to: int) -> bytes:
        """Its description in a file where it begins there."""
        shift = to - self.offset
        meta = {
            number: (kind, value + shift) if number in (_DATA_AT, _DICTIONARY_AT) else (kind, value)
            for number, (kind, value) in self._meta.items()
        }
        return thrift.encode({**self.column, _CHUNK_META: (Type.STRUCT, meta)})


class Footer:
    """What a Parquet file says of itself. ValueError or LookupError for what is none."""

    def __init__(self, data: bytes) -> None:
        self.fields = thrift.decode(data, raw=(_GROUPS, _CHUNKS))

    @classmethod
    def of(cls, file: BinaryIO) -> tuple[Footer, int]:
        """(the footer of a file, where it begins)"""
        size = file.seek(0, 2)
        file.seek(size - _TAIL.size)
        length, magic = _TAIL.unpack(file.read(_TAIL.size))
        if magic != MAGIC:
            raise ValueError("it does not end like a Parquet file")
        start = size - _TAIL.size - length
        file.seek(start)
        return cls(file.read(length)), start

    @property
    def groups(self) -> list[Struct]:
        """Its row groups."""
        groups: list[Struct] = self.fields[_GROUPS][1].values
        return groups

    @property
    def leaves(self) -> list[Leaf]:
        """Its columns, in the order of the schema. They are no groups of columns."""
        elements = self.fields[_SCHEMA][1].values[1:]  # behind the root
        return [Leaf(element[_ELEMENT_NAME][1], element[_ELEMENT_TYPE][1]) for element in elements]

    def described_as(self, other: Footer) -> None:
        """Take the schema of another file of the same rows."""
        for number in (_SCHEMA, _ORDERS):
            self.fields[number] = other.fields[number]

    def encode(self) -> bytes:
        """The end of the file, from the footer on."""
        data = thrift.encode(self.fields)
        return data + _TAIL.pack(len(data), MAGIC)


def rows_of(group: Struct) -> int:
    """How many rows a row group has."""
    return int(group[_ROWS][1])


def columns_of(group: Struct) -> list[bytes]:
    """The descriptions of its columns, in their order; `Chunk` reads one."""
    columns: list[bytes] = group[_CHUNKS][1].values
    return columns


def set_columns(group: Struct, columns: list[bytes], *, unpacked: int, packed: int) -> None:
    """Give a row group these columns; it becomes so many bytes larger."""
    group[_CHUNKS] = (Type.LIST, Items(Type.STRUCT, columns))
    for number, more in ((_GROUP_BYTES, unpacked), (_GROUP_PACKED, packed)):
        if number in group:
            group[number] = (Type.I64, group[number][1] + more)


def absent_page(rows: int) -> bytes:
    """So many rows of a column without any value: null, said once."""
    run = thrift.varint(rows << 1) + b"\0"  # of the RLE encoding: level 0, so many times
    levels = struct.pack("<i", len(run)) + run
    crc = zlib.crc32(levels)
    data: Struct = {1: (Type.I32, rows), 2: (Type.I32, _PLAIN), 3: (Type.I32, _RLE), 4: (Type.I32, _RLE)}
    header: Struct = {
        1: (Type.I32, _DATA_PAGE),
        2: (Type.I32, len(levels)),
        3: (Type.I32, len(levels)),
        4: (Type.I32, crc - (1 << 32) if crc >> 31 else crc),
        5: (Type.STRUCT, data),
    }
    return thrift.encode(header) + levels


def absent_column(leaf: Leaf, rows: int, page: bytes, at: int) -> bytes:
    """The description of a column whose `absent_page` begins there."""
    size = (Type.I64, len(page))
    meta: Struct = {
        _PHYSICAL: (Type.I32, leaf.physical),
        2: (Type.LIST, Items(Type.I32, [_PLAIN, _RLE])),
        _PATH: (Type.LIST, Items(Type.BINARY, [leaf.name])),
        4: (Type.I32, _UNCOMPRESSED),
        _VALUES: (Type.I64, rows),
        _BYTES: size,
        _PACKED: size,
        _DATA_AT: (Type.I64, at),
        12: (Type.STRUCT, {3: (Type.I64, rows)}),  # statistics: how many are null
    }
    return thrift.encode({_CHUNK_OFFSET: (Type.I64, 0), _CHUNK_META: (Type.STRUCT, meta)})
