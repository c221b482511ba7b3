"""Tag streams of inputs (docs/wire-format.md, Inputs) as the JSON that Kineto writes for the same op.

So that queries, FLOPS and exports see no difference between the sources.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from typing import Any, Final

# c10::ScalarType, by the names that torch.profiler prints.
DTYPES: Final = (
    "unsigned char",
    "signed char",
    "short int",
    "int",
    "long int",
    "c10::Half",
    "float",
    "double",
    "c10::complex<c10::Half>",
    "c10::complex<float>",
    "c10::complex<double>",
    "bool",
    "c10::qint8",
    "c10::quint8",
    "c10::qint32",
    "c10::BFloat16",
    "c10::quint4x2",
    "c10::quint2x4",
    "c10::bits1x8",
    "c10::bits2x4",
    "c10::bits4x2",
    "c10::bits8",
    "c10::bits16",
    "c10::Float8_e5m2",
    "c10::Float8_e4m3fn",
    "c10::Float8_e5m2fnuz",
    "c10::Float8_e4m3fnuz",
    "unsigned short",
    "unsigned int",
    "unsigned long",
)
_VALUES_MAX: Final = 8192  # of one stream: it fits into 255 slots


class Malformed(ValueError):
    """No tag stream."""


def signature(stream: bytes) -> str:
    """JSON of Input Dims, Input type, Input Strides and Concrete Inputs. Raises Malformed."""
    reader = _Reader(stream)
    values = []
    while not reader.ended:
        values.append(_value(reader))
    return json.dumps(
        {
            "Input Dims": [value[0] for value in values],
            "Input type": [value[1] for value in values],
            "Input Strides": [value[2] for value in values],
            "Concrete Inputs": [value[3] for value in values],
        }
    )


_Value = tuple[list[Any], str, list[Any], str]  # sizes, type, strides, printed value
_NOTHING: Final[_Value] = ([], "", [], "")


class _Reader:
    """Checked reading. Every method raises Malformed."""

    def __init__(self, stream: bytes) -> None:
        self._stream = stream
        self._at = 0
        self._left = _VALUES_MAX

    @property
    def ended(self) -> bool:
        return self._at >= len(self._stream)

    def byte(self) -> int:
        if self.ended:
            raise Malformed("it ends within a value")
        self._at += 1
        return self._stream[self._at - 1]

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF
        raise Malformed("a number has more than ten bytes")

    def svarint(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def f64(self) -> float:
        raw = self._stream[self._at : self._at + 8]
        if len(raw) < 8:
            raise Malformed("it ends within a float")
        self._at += 8
        return float(struct.unpack("<d", raw)[0])

    def count(self) -> int:
        """Of what follows. The whole stream has a limit, whatever it says."""
        found = self.varint()
        self._left -= found
        if self._left < 0:
            raise Malformed("it has more values than fit a stream")
        return found

    def integers(self, count: int) -> list[int]:
        return [self.svarint() for _ in range(count)]


def _value(reader: _Reader) -> _Value:
    tag = reader.byte()
    if tag == 4:
        return _tensors(reader, reader.count())
    if tag == 14:
        there, kept = reader.varint(), reader.count()
        sizes, kind, strides, _ = _tensors(reader, kept)
        return sizes, kind, strides, f"{there} tensors, the first {kept} are here"
    if tag in _TENSORS:
        return _tensor(tag, reader)
    if tag in _SCALARS:
        return [], "Scalar", [], _SCALARS[tag](reader)
    if tag in _LISTS:
        one = _LISTS[tag]
        return [], "ScalarList", [], f"[{', '.join(one(reader) for _ in range(reader.count()))}]"
    raise Malformed(f"it has the unknown tag {tag}")


def _tensor(tag: int, reader: _Reader) -> _Value:
    if tag in (0, 12):
        return _NOTHING
    dtype = _dtype(reader.byte())
    if tag == 2:
        return [], dtype, [], ""
    if tag == 13:
        count, dimensions = reader.count(), reader.count()
        return [reader.integers(dimensions) for _ in range(count)], dtype, [], ""
    dimensions = reader.count()
    sizes = reader.integers(dimensions)
    return sizes, dtype, reader.integers(dimensions) if tag == 1 else [], ""


def _tensors(reader: _Reader, count: int) -> _Value:
    found = []
    for _ in range(count):
        tag = reader.byte()
        if tag not in _TENSORS:
            raise Malformed(f"a list of tensors has the tag {tag}")
        found.append(_tensor(tag, reader))
    return [each[0] for each in found], "TensorList", [each[2] for each in found], ""


def _dtype(number: int) -> str:
    return DTYPES[number] if number < len(DTYPES) else f"dtype {number}"


def _float(value: float) -> str:
    """As torch prints a double: whole numbers with a bare point, others with 17 digits."""
    if math.isfinite(value) and abs(value) < 1e10 and value == int(value):
        return f"{'-' if math.copysign(1, value) < 0 and value == 0 else ''}{int(value)}."
    return f"{value:.17g}"


def _complex(reader: _Reader) -> str:
    real, imaginary = reader.f64(), reader.f64()
    return f"{_float(real)}{'' if imaginary < 0 else '+'}{_float(imaginary)}j"


def _int(reader: _Reader) -> str:
    return str(reader.svarint())


def _double(reader: _Reader) -> str:
    return _float(reader.f64())


def _bool(reader: _Reader) -> str:
    return str(reader.byte() != 0)


_TENSORS: Final = frozenset((0, 1, 2, 3, 12, 13))
_SCALARS: Final[dict[int, Callable[[_Reader], str]]] = {5: _int, 6: _double, 7: _bool, 8: _complex}
_LISTS: Final[dict[int, Callable[[_Reader], str]]] = {9: _int, 10: _double, 11: _bool}
