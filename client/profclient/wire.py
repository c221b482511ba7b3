"""Fields of a protobuf message that nobody has parsed yet: measured before two bytes become an object of three hundred.

The daemon looks at callers' messages with it, and the client at the answers of hosts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_SIZES: Final = {_FIXED64: 8, _FIXED32: 4}


def fields(data: memoryview) -> Iterator[tuple[int, memoryview | None]]:
    """Number and bytes of each field; None of those that are numbers. ValueError, IndexError for what is not proto3."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind not in (_VARINT, _BYTES) and kind not in _SIZES:
            raise ValueError(f"wire type {kind}")
        size = _SIZES.get(kind, 0)
        if kind == _VARINT:
            _, at = _varint(data, at)
        elif kind == _BYTES:
            size, at = _varint(data, at)
        if size > len(data) - at:
            raise IndexError(size)
        yield tag >> 3, data[at : at + size] if kind == _BYTES else None
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number at this place, and the place behind it."""
    number = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise ValueError("a number of more than ten bytes")
