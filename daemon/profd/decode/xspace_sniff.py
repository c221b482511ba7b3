"""Whether bytes are the beginning of an XSpace, which has no magic number.

Text can begin as protobuf does (a line break is the tag of a plane), so what lies inside the first
plane must be right as well.
"""

from __future__ import annotations

from typing import Final

_VARINT: Final = 0
_LENGTH: Final = 2
# Field number -> wire type. Anything else is no XSpace that we know of.
_SPACE: Final = {1: _LENGTH, 2: _LENGTH, 3: _LENGTH, 4: _LENGTH}
_PLANE: Final = {1: _VARINT, 2: _LENGTH, 3: _LENGTH, 4: _LENGTH, 5: _LENGTH, 6: _LENGTH}
_LINE: Final = {
    1: _VARINT, 2: _LENGTH, 3: _VARINT, 4: _LENGTH, 9: _VARINT, 10: _VARINT, 11: _LENGTH,
}  # fmt: skip
_ENTRY: Final = {1: _VARINT, 2: _LENGTH}
_STAT: Final = {1: _VARINT, 2: 1, 3: _VARINT, 4: _VARINT, 5: _LENGTH, 6: _LENGTH, 7: _VARINT}
_INSIDE: Final = {3: _LINE, 4: _ENTRY, 5: _ENTRY, 6: _STAT}  # of a plane


def looks_like(head: bytes) -> bool:
    """Whether the first bytes of a file fit; it may go on beyond them."""
    fields = _fields(head, 0, len(head), _SPACE)
    if not fields:
        return False
    planes = [(first, last) for number, first, last in fields if number == 1]
    if not planes:
        # Hostnames, errors or warnings alone: then all of it must fit.
        return fields[-1][2] == len(head) and head.isascii()
    inside = [_fields(head, first, last, _PLANE) for first, last in planes]
    if any(found is None for found in inside) or not any(inside):
        return False
    for found in inside:
        for number, first, last in found or ():
            if number in _INSIDE and _fields(head, first, last, _INSIDE[number]) is None:
                return False
    return True


def _fields(data: bytes, first: int, last: int, known: dict[int, int]) -> list[tuple[int, int, int]] | None:
    """(number, first, last) of the fields of a message as far as `data` goes; None if it is none."""
    found = []
    end = min(last, len(data))
    at = first
    while at < end:
        tag, at = _varint(data, at, end)
        if tag is None:
            break
        if known.get(tag >> 3) != tag & 7:
            return None
        if tag & 7 == 1:
            found.append((tag >> 3, at, at + 8))
            at += 8
            continue
        value, at = _varint(data, at, end)
        if value is None:
            break
        if tag & 7 == _VARINT:
            found.append((tag >> 3, at, at))
            continue
        if at + value > last and last != len(data):
            return None  # longer than what holds it
        found.append((tag >> 3, at, at + value))
        at += value
    return found


def _varint(data: bytes, at: int, end: int) -> tuple[int | None, int]:
    """(value, behind it); None where it is cut off. More than ten bytes become a tag that nothing has."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            return None, at
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return 0, at
