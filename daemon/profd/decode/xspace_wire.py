"""The bytes of an XSpace, message by message, none of them trusted."""

from __future__ import annotations

import contextlib
import io
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from profd import limits
from profd._scan import wire_fields
from profd.decode.batch import Findings

LENGTH: Final = 2  # wire type of messages, strings and bytes
VARINT: Final = 0


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes [first, last) of the file."""

    first: int
    last: int


class Wire:
    """An XSpace in memory. Bytes that are no message are counted in `findings`, and the bytes before them are used."""

    def __init__(self, content: mmap.mmap, size: int, findings: Findings) -> None:
        self.content = content
        self.size = size
        self.array: npt.NDArray[np.uint8] = np.frombuffer(content, dtype=np.uint8)[:size]
        self.findings = findings

    @classmethod
    def of(cls, file: BinaryIO, size: int, findings: Findings) -> Wire:
        """The first bytes of a file, in memory of their own: its owner could cut off a mapped one meanwhile."""
        content = mmap.mmap(-1, max(1, size))
        with contextlib.suppress(OSError):  # not every kernel has them
            content.madvise(mmap.MADV_HUGEPAGE)  # a fault for every 4 kB costs as much as reading them
        read = 0
        with memoryview(content) as room:
            while read < size and (some := cast(io.BufferedIOBase, file).readinto(room[read:size])):
                read += some
        return cls(content, read, findings)

    def let_go(self, span: Span) -> None:
        """Give the memory of bytes that nobody will read again back to the system."""
        first, last = -(-span.first // mmap.PAGESIZE), span.last // mmap.PAGESIZE
        if first < last:
            self.content.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE)

    @property
    def whole(self) -> Span:
        """The outermost message."""
        return Span(0, self.size)

    def fields(self, span: Span, *numbers: int) -> Iterator[tuple[int, Span | int]]:
        """(number, its bytes or its value) for the fields with these numbers, in order.

        Values are the 64 bits read as signed. Fields of another wire type than strings,
        messages and varints are left out.
        """
        wanted = sum(1 << number for number in numbers)
        number, kind, value, length, fault, full = wire_fields(
            self.array, span.first, span.last, wanted, limits.XSPACE_FIELDS_MAX
        )
        if full:
            self.findings.lose("too_many_fields")
        if fault >= 0:
            self._fault(fault)
        columns = (number.tolist(), kind.tolist(), value.tolist(), length.tolist())
        for which, wire, at, size in zip(*columns, strict=True):
            if wire == LENGTH:
                yield which, Span(at, at + size)
            elif wire == VARINT:
                yield which, at

    def _fault(self, byte: int) -> None:
        if not self.findings.truncated:
            self.findings.truncated = (
                f"the XSpace is cut off or damaged at byte {byte} of {self.size}; what could be read is kept"
            )
            self.findings.lose("truncated")

    def bytes(self, span: Span) -> bytes:
        """The content of a field."""
        return self.content[span.first : span.last]

    def text(self, span: Span) -> str:
        """A string; what is not UTF-8 in it is replaced."""
        return decoded(self.bytes(span)[: limits.STRING_BYTES_MAX])


def decoded(text: bytes) -> str:
    """UTF-8, with what is none replaced."""
    return text.decode("utf-8", "replace")


def parsed(message: Any, wire: Wire, span: Span) -> Any:
    """A small message of protobuf's own parser; None, counted, if it is none."""
    try:
        return message.FromString(wire.bytes(span))
    except DecodeError:
        wire.findings.lose("malformed_metadata")
        return None
