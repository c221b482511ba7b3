"""Protobuf's wire format, as much of it as our exports write.

Hand-written: docs/decisions/0004-export-encoders.md says why.
"""

from __future__ import annotations

import struct
from typing import Final

_UINT64: Final = (1 << 64) - 1
_SMALL: Final = [bytes([value]) for value in range(0x80)]


def varint(value: int) -> bytes:
    """An unsigned or, as int64 is written, a negative integer."""
    if 0 <= value < 0x80:
        return _SMALL[value]
    value &= _UINT64
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(field: int, value: int) -> bytes:
    """A field of a varint type."""
    return varint(field << 3) + varint(value)


def fixed64(field: int, value: int) -> bytes:
    """A fixed64 field."""
    return varint(field << 3 | 1) + struct.pack("<Q", value & _UINT64)


def double(field: int, value: float) -> bytes:
    """A double field."""
    return varint(field << 3 | 1) + struct.pack("<d", value)


def message(field: int, *parts: bytes) -> bytes:
    """A field of bytes, or of a message made of these fields."""
    body = b"".join(parts)
    return varint(field << 3 | 2) + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    """A string field; what is no UTF-8 (lone surrogates) becomes `?`."""
    return message(field, value.encode("utf-8", "replace"))


def packed(field: int, values: list[int]) -> bytes:
    """A repeated field of a varint type."""
    return message(field, *map(varint, values))
