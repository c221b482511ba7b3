"""Lines between a client and a relay (docs/relay-protocol.md): written, and read from bytes that others have touched.

    @profd1 <number> <kind> <stream> <base64 of the payload, or -> <CRC-32 of all before it, 8 hex digits>

Carriers print banners, merge and cut what they carry. A line of ours that is not whole, or missing, ends the
conversation; other lines are noise. Where one carrier has the lines of many relays, an address stands before each.
"""

from __future__ import annotations

import binascii
import zlib
from collections import deque

TYPE_CHECKING = False  # typing itself takes 7 ms
if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = b"@profd1"
VERSION = 1
LINE_BYTES_MAX = 16384
DATA_BYTES_MAX = 12000  # of a payload: in base64, and with the rest, no longer than a line
NOISE_BYTES_MAX = 1 << 20  # from a carrier, all together
NOISE_KEPT = 4  # lines, for the sentence that says what came instead
NOISE_LINE_BYTES_KEPT = 200
STREAM_MAX = 1 << 31
TO, OF = b"@profd-to ", b"@profd-of "  # what an address follows: of the client's lines, of a relay's
HERE, GONE = b"here", b"gone"  # instead of a line: a relay with an address begins, and ends
SHARED_LINE_BYTES_MAX = 1000  # srun carries lines of up to 1,024 bytes whole, and cuts longer ones
_HEAD_BYTES_MAX = 56  # all but the payload: mark, number, kind, stream, checksum
KINDS = frozenset(
    (b"hello", b"token", b"clock", b"open", b"data", b"ack", b"close", b"ping", b"pong", b"error", b"bye")
)


class Garbled(Exception):
    """The bytes are not, or no longer, a conversation in this protocol; str() says why."""


class Message:
    """One message."""

    __slots__ = ("kind", "payload", "stream")

    def __init__(self, kind: str, stream: int, payload: bytes) -> None:
        self.kind, self.stream, self.payload = kind, stream, payload


class Writer:
    """Numbers and writes the lines of one side; with an address, those of a relay that shares its carrier."""

    def __init__(self, address: bytes = b"") -> None:
        self._number = 0
        self._prefix = OF + address + b" " if address else b""
        room = SHARED_LINE_BYTES_MAX - len(self._prefix) - _HEAD_BYTES_MAX
        self.payload_bytes_max = room // 4 * 3 if address else DATA_BYTES_MAX

    def line(self, kind: str, stream: int = 0, payload: bytes = b"") -> bytes:
        """The bytes of a line. ValueError for a payload that is too long for one."""
        if len(payload) > self.payload_bytes_max:
            raise ValueError(f"{len(payload)} bytes are too many for a line, which holds {self.payload_bytes_max}")
        data = binascii.b2a_base64(payload, newline=False) or b"-"
        body = b"%s %d %s %d %s" % (MARK, self._number, kind.encode(), stream, data)
        self._number += 1
        return b"%s%s %08x\n" % (self._prefix, body, zlib.crc32(body))


class Sorter:
    """Tells lines with addresses from noise. Holds one line at most."""

    def __init__(self, mark: bytes, noise_bytes_max: int = NOISE_BYTES_MAX) -> None:
        self._mark, self._left = mark, noise_bytes_max
        self._rest = b""

    def feed(self, untrusted: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Address, and what follows it without the end of the line. Garbled where noise has no end."""
        *whole, self._rest = (self._rest + untrusted).split(b"\n")
        if len(self._rest) > 2 * LINE_BYTES_MAX:
            whole.append(self._rest)
            self._rest = b""
        for text in whole:
            noise, mark, addressed = text.partition(self._mark)
            self._left -= len(noise) + (not mark)
            if self._left < 0:
                raise Garbled("more came than a carrier may say that are no lines of relays")
            if mark:
                address, _, line = addressed.partition(b" ")
                yield address, line.rstrip(b"\r")


class Reader:
    """Finds the lines of the other side among bytes. Holds one line at most."""

    def __init__(self) -> None:
        self.noise: deque[bytes] = deque(maxlen=NOISE_KEPT)
        self._noise_bytes = 0
        self._rest = b""
        self._number = 0

    def feed(self, untrusted: bytes) -> Iterator[Message]:
        """Lines that are whole now. Garbled where one of ours is cut or missing, or noise has no end."""
        *whole, self._rest = (self._rest + untrusted).split(b"\n")
        for text in whole:
            if (line := self._line(text)) is not None:
                yield line
        if len(self._rest) > LINE_BYTES_MAX:
            if MARK in self._rest:
                raise Garbled(f"a line is longer than {LINE_BYTES_MAX} bytes")
            self._drop(self._rest)
            self._rest = b""

    def end(self) -> None:
        """Nothing more comes. Garbled where that cuts a line."""
        if MARK in self._rest:
            raise Garbled("the last line is cut")

    def _line(self, text: bytes) -> Message | None:
        start = text.find(MARK)  # a banner may have had no end of line
        if start < 0:
            self._drop(text)
            return None
        if start:
            self._drop(text[:start])
        return self._checked(text[start:].rstrip(b"\r"))

    def _checked(self, text: bytes) -> Message:
        body, _, checksum = text.rpartition(b" ")
        parts = body.split(b" ")
        if len(text) > LINE_BYTES_MAX or len(parts) != 5 or checksum != b"%08x" % zlib.crc32(body):
            raise Garbled("a line is cut or was changed on its way")
        mark, number, kind, stream, data = parts
        if mark != MARK or kind not in KINDS or not (number.isdigit() and stream.isdigit() and len(stream) <= 10):
            raise Garbled("a line is of no kind that this side knows: the other side is of another version")
        if number != b"%d" % self._number:
            raise Garbled(f"line {self._number} is missing: the carrier has lost, doubled or mixed up what it carried")
        self._number += 1
        try:
            payload = b"" if data == b"-" else binascii.a2b_base64(data, strict_mode=True)
        except binascii.Error:
            raise Garbled("the payload of a line is no base64") from None
        return Message(kind.decode(), int(stream), payload)

    def _drop(self, noise: bytes) -> None:
        self._noise_bytes += len(noise) + 1
        if noise.strip():
            self.noise.append(noise[:NOISE_LINE_BYTES_KEPT])
        if self._noise_bytes > NOISE_BYTES_MAX:
            raise Garbled(f"more than {NOISE_BYTES_MAX >> 20} MiB came that are no lines of a relay")
