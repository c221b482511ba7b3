"""The empty call of `empty_call` without gRPC at one end, or at both: what gRPC's client and its server take of it.

`python -m bench.floors.bare_call SOCKET` serves one connection after the other, with as much HTTP/2 as gRPC's client
wants to see, and answers with the time at which the bytes of a call had come. `BareCall` is a client of that kind.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _PING = 0, 1, 4, 6
_END_STREAM: Final = 1  # of DATA and HEADERS; of SETTINGS and PING it says that they are an answer
_END_HEADERS: Final = 4
_METHOD_POST, _SCHEME_HTTP, _STATUS_200 = b"\x83", b"\x86", b"\x88"  # of HPACK's static table


@dataclass(frozen=True)
class _Frame:
    kind: int
    flags: int
    stream: int
    body: bytes = b""

    def packed(self) -> bytes:
        head = struct.pack(">IBBI", len(self.body), self.kind, self.flags, self.stream)
        return head[1:] + self.body


class _Connection:
    """Frames over a socket; settings and pings of the other end are answered."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._bytes = b""
        self.read_ns = 0  # Unix ns of when bytes last came

    def send(self, *frames: _Frame) -> None:
        self._socket.sendall(b"".join(frame.packed() for frame in frames))

    def take(self, size: int) -> bytes:
        """Raises EOFError where the other end has closed."""
        while len(self._bytes) < size:
            more = self._socket.recv(1 << 16)
            self.read_ns = time.time_ns()
            if not more:
                raise EOFError
            self._bytes += more
        taken, self._bytes = self._bytes[:size], self._bytes[size:]
        return taken

    def frames(self) -> Iterator[_Frame]:
        while True:
            head = self.take(9)
            kind, flags, stream = struct.unpack(">BBI", head[3:])
            frame = _Frame(kind, flags, stream, self.take(int.from_bytes(head[:3], "big")))
            if kind in (_SETTINGS, _PING) and not flags & _END_STREAM:
                self.send(_Frame(kind, _END_STREAM, 0, frame.body if kind == _PING else b""))
            else:
                yield frame


class BareCall:
    """A client of `empty_call`'s method: what it sends is made beforehand."""

    def __init__(self, path: Path, method: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._socket.sendall(_PREFACE)
        self._connection = _Connection(self._socket)
        self._connection.send(_Frame(_SETTINGS, 0, 0))
        self._frames = self._connection.frames()
        fields = {":path": method, ":authority": "localhost", "content-type": "application/grpc", "te": "trailers"}
        self._headers = _METHOD_POST + _SCHEME_HTTP + b"".join(_field(*pair) for pair in fields.items())
        self._stream = -1

    def __call__(self, message: bytes) -> bytes:
        """The answer; `message` must be empty."""
        self._stream += 2
        head = _Frame(_HEADERS, _END_HEADERS, self._stream, self._headers)
        self._connection.send(head, _Frame(_DATA, _END_STREAM, self._stream, _message(message)))
        answer = b""
        for frame in self._frames:
            if frame.stream == self._stream and frame.kind == _DATA:
                answer += frame.body
            if frame.stream == self._stream and frame.kind == _HEADERS and frame.flags & _END_STREAM:
                return answer[5:]
        raise EOFError

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def _field(name: str, value: str) -> bytes:
    """A header as HPACK's literal that is not indexed; both shorter than 127 bytes."""
    return b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def _message(body: bytes) -> bytes:
    return struct.pack(">BI", 0, len(body)) + body


def _serve(path: str) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    print("ready", flush=True)
    head = _STATUS_200 + _field("content-type", "application/grpc")
    while True:
        connection = _Connection(listener.accept()[0])
        connection.send(_Frame(_SETTINGS, 0, 0))
        try:
            connection.take(len(_PREFACE))
            for frame in connection.frames():
                if frame.kind == _DATA and frame.flags & _END_STREAM:
                    connection.send(
                        _Frame(_HEADERS, _END_HEADERS, frame.stream, head),
                        _Frame(_DATA, 0, frame.stream, _message(str(connection.read_ns).encode())),
                        _Frame(_HEADERS, _END_HEADERS | _END_STREAM, frame.stream, _field("grpc-status", "0")),
                    )
        except EOFError:
            continue


if __name__ == "__main__":
    _serve(sys.argv[1])
