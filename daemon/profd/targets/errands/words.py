"""The conversation between the daemon and a process of its errands: a bounded message of msgpack each way.

A question is a list that begins with its name; an answer is a list that begins with its kind. Paths are bytes: the
kernel knows no text.
"""

from __future__ import annotations

import socket
from typing import Any, Final

import msgspec

MESSAGE_BYTES_MAX: Final = 160 * 1024  # two files as torch_of reads them, and less than a socket takes by default

ANSWER: Final = "answer"  # what was asked for
REFUSED: Final = "refused"  # targets.pickup.NotTaken: code, message
FAILED: Final = "failed"  # an OSError: number, text
HOLD: Final = "hold"  # asks itself, in the middle of a copy: store.space.Claim.hold
CLOSE: Final = "close"  # a question without an answer: a directory
WROTE: Final = "wrote"  # tells: Claim.wrote
HELD: Final = "held"  # instead of what was asked for: the name is that of a bound socket
NO_SOCKET: Final = "no socket"  # the same, of something else
FOR_FILES: Final = b"f"  # said to what makes the processes: what this one is for
FOR_NAMES: Final = b"n"

WITH_DESCRIPTOR: Final = ("allocate", "free", "bind", "send")  # questions about a descriptor that comes with them


def pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a conversation."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def packed(words: list[Any]) -> bytes:
    """The words as one message. ValueError where they are too long for one."""
    raw = msgspec.msgpack.encode(words)
    if len(raw) > MESSAGE_BYTES_MAX:
        raise ValueError(f"a message of {len(raw)} bytes")
    return raw


def unpacked(raw: bytes) -> list[Any]:
    """The words of a message. ValueError where it is none."""
    try:
        words = msgspec.msgpack.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if not isinstance(words, list) or not words or not isinstance(words[0], str):
        raise ValueError("a message without words")
    return words
