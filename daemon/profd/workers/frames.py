"""Frames between the daemon and a worker: `>II` (body length, descriptors), then JSON.

Descriptors travel as SCM_RIGHTS with the header. The channel is a stream
socketpair: a result may be larger than any datagram. Lengths are checked on
both sides, because a worker that has read hostile bytes is not trusted.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any, Final

from profd.kernel.rights import received_descriptors

HEADER: Final = struct.Struct(">II")
FRAME_BYTES_MAX: Final = 64 << 20  # JSON of one job's arguments
RESULT_BYTES_MAX: Final = 2 << 20  # of its result, which the daemon's event loop parses: answers go to descriptors
FDS_MAX: Final = 128  # the kernel's bound per message is 253


class FrameError(Exception):
    """The peer broke the framing, or what is to be sent does not fit."""


def encode(message: dict[str, Any], fds: int = 0, most: int = FRAME_BYTES_MAX) -> bytes:
    """Header and body. Raises FrameError when it has more than `most` bytes or is not JSON."""
    try:
        body = json.dumps(message, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise FrameError(f"not JSON: {error}") from error
    if len(body) > most:
        raise FrameError(f"{len(body)} bytes of JSON, the limit is {most}")
    return HEADER.pack(len(body), fds) + body


def decode_header(data: bytes, most: int = FRAME_BYTES_MAX) -> tuple[int, int]:
    """(body length, descriptors). Raises FrameError above the limits."""
    length, fds = HEADER.unpack(data)
    if length > most or fds > FDS_MAX:
        raise FrameError(f"a frame of {length} bytes with {fds} descriptors")
    return length, fds


def decode_body(data: bytes) -> dict[str, Any]:
    """The message. Raises FrameError if it is not a JSON object."""
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"not JSON: {error}") from error
    if not isinstance(message, dict):
        raise FrameError("not a JSON object")
    return message


def rights(fds: Sequence[int]) -> list[tuple[int, int, bytes]]:
    """Ancillary data that carries descriptors; none for none."""
    if not fds:
        return []
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())]


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """One frame from a blocking socket, None at its end; the descriptors are the caller's."""
    # socket.recv_fds loses MSG_CMSG_CLOEXEC on 3.11 (docs/facts), so recvmsg itself.
    space = socket.CMSG_SPACE(FDS_MAX * array.array("i").itemsize)
    head, ancillary, flags, _ = sock.recvmsg(HEADER.size, space, socket.MSG_CMSG_CLOEXEC)
    fds = received_descriptors(ancillary)
    try:
        if not head:
            return None
        if flags & socket.MSG_CTRUNC:
            raise FrameError("more descriptors than announced")
        head += _exactly(sock, HEADER.size - len(head))
        length, expected = decode_header(head)
        if expected != len(fds):
            raise FrameError(f"{len(fds)} descriptors instead of {expected}")
        return decode_body(_exactly(sock, length)), fds
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = sock.recv(min(count - len(data), 1 << 20))
        if not piece:
            raise FrameError("the other side closed in the middle of a frame")
        data += piece
    return bytes(data)
