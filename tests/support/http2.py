"""HTTP/2 by hand: what a client sends who does not keep to gRPC's manners."""

from __future__ import annotations

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, PADDED, PRIORITY = 0x1, 0x4, 0x8, 0x20
HEADER_BYTES = 9


def frame(kind: int, flags: int = 0, stream: int = 0, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


BEGIN = PREFACE + frame(SETTINGS)


def literal(name: str, value: str) -> bytes:
    """A header, neither indexed nor compressed; short ones."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def call(path: str, stream: int, flags: int = END_HEADERS) -> bytes:
    """The HEADERS of a call of gRPC."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    return frame(HEADERS, flags, stream, b"".join(literal(name, value) for name, value in fields.items()))


def message(body: bytes) -> bytes:
    """A message of gRPC."""
    return b"\x00" + len(body).to_bytes(4, "big") + body


def frames(data: bytes) -> list[tuple[int, int, int, int]]:
    """Length, type, flags and stream of whole frames; the preface has been cut off."""
    found = []
    while len(data) >= HEADER_BYTES:
        length = int.from_bytes(data[:3], "big")
        found.append((length, data[3], data[4], int.from_bytes(data[5:9], "big") & 0x7FFF_FFFF))
        data = data[HEADER_BYTES + length :]
    return found
