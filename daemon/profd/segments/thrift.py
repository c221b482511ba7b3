"""Thrift's compact protocol: what the footer and the page headers of Parquet are written in.

Any struct is read without its definition and written back as it was, so that what a later Parquet adds is kept.
The encoding: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final


class Type(IntEnum):
    """Of a field, as it is numbered on the wire. Booleans are their own types: the value is in it."""

    TRUE = 1
    FALSE = 2
    BYTE = 3
    I16 = 4
    I32 = 5
    I64 = 6
    DOUBLE = 7
    BINARY = 8
    LIST = 9
    SET = 10
    STRUCT = 12


@dataclass(slots=True)
class Items:
    """A list: the type of its items, and these."""

    type: int
    values: list[Any]


Struct = dict[int, tuple[int, Any]]  # field number, ascending -> (type, value)

_INTEGERS: Final = (Type.I16, Type.I32, Type.I64)
_LONG_LIST: Final = 15


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self, raw: tuple[int, ...] = ()) -> Struct:
        """`raw`: the way, by field numbers, to a list whose structs stay bytes."""
        fields: Struct = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else _signed(self._varint())
            if raw and number == raw[0] and kind == Type.LIST:
                fields[number] = (kind, self._structs(raw[1:]))
            else:
                fields[number] = (kind, self._value(kind))
        return fields

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def _bytes(self, size: int) -> bytes:
        self.at += size
        return self._data[self.at - size : self.at]

    def _value(self, kind: int) -> Any:
        if kind in _INTEGERS:
            return _signed(self._varint())
        if kind == Type.BINARY:
            return self._bytes(self._varint())
        if kind == Type.STRUCT:
            return self.struct()
        if kind in (Type.LIST, Type.SET):
            item, count = self._head()
            of_bytes = item in (Type.TRUE, Type.FALSE)
            return Items(item, [self._byte() if of_bytes else self._value(item) for _ in range(count)])
        if kind in (Type.TRUE, Type.FALSE):
            return None
        if kind == Type.BYTE:
            return self._byte()
        if kind == Type.DOUBLE:
            return self._bytes(8)
        raise ValueError(f"a field of type {kind}, which Parquet does not use")

    def _head(self) -> tuple[int, int]:
        """(type of the items, how many) of a list."""
        head = self._byte()
        return head & 15, self._varint() if head >> 4 == _LONG_LIST else head >> 4

    def _structs(self, raw: tuple[int, ...]) -> Items:
        kind, count = self._head()
        if kind != Type.STRUCT:
            raise ValueError(f"a list of type {kind} where structs belong")
        if raw:
            return Items(kind, [self.struct(raw) for _ in range(count)])
        found = []
        for _ in range(count):
            begin = self.at
            self._skip_struct()
            found.append(self._data[begin : self.at])
        return Items(kind, found)

    def _skip_struct(self) -> None:
        data = self._data
        while head := data[self.at]:
            self.at += 1
            if not head >> 4:
                self._varint()
            self._skip(head & 15)
        self.at += 1

    def _skip(self, kind: int) -> None:
        if kind in _INTEGERS:
            data, at = self._data, self.at
            while data[at] & 0x80:
                at += 1
            self.at = at + 1
        elif kind == Type.STRUCT:
            self._skip_struct()
        elif kind == Type.BINARY:
            self._bytes(self._varint())
        else:
            self._value(kind)


def _signed(value: int) -> int:
    return value >> 1 ^ -(value & 1)


def varint(value: int) -> bytes:
    """A number that is not negative, seven bits a byte, the lowest ones first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _value(kind: int, value: Any) -> bytes:
    if kind in _INTEGERS:
        return varint(value << 1 if value >= 0 else ~(value << 1))
    if kind == Type.BINARY:
        return varint(len(value)) + bytes(value)
    if kind == Type.STRUCT:
        return value if isinstance(value, bytes) else encode(value)
    if kind in (Type.LIST, Type.SET):
        count = len(value.values)
        head = bytes([count << 4 | value.type]) if count < _LONG_LIST else bytes([0xF0 | value.type]) + varint(count)
        of_bytes = value.type in (Type.TRUE, Type.FALSE)
        return head + b"".join(bytes([item]) if of_bytes else _value(value.type, item) for item in value.values)
    if kind == Type.BYTE:
        return bytes([value])
    return value or b""  # the eight bytes of a double; of a boolean, nothing


def encode(fields: Struct) -> bytes:
    """A struct as bytes."""
    out, before = [], 0
    for number, (kind, value) in sorted(fields.items()):
        step = number - before
        out.append(bytes([step << 4 | kind]) if 0 < step <= 15 else bytes([kind]) + _value(Type.I16, number))
        out.append(_value(kind, value))
        before = number
    return b"".join(out) + b"\0"


def decode(data: bytes, raw: tuple[int, ...] = ()) -> Struct:
    """The struct at the beginning. `raw`: the field numbers of a list within lists whose structs are left as bytes.

    IndexError where the bytes end too soon, ValueError for what is no such thing.
    """
    return _Reader(data).struct(raw)
