"""A socket whose close takes as long as its owner likes."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

_LOOPBACK = b"127.0.0.1"  # no text: that takes the encoding idna, which may not be there to import


@contextlib.contextmanager
def lingering() -> Iterator[socket.socket]:
    """TCP, with more in it than the other end takes, and ten minutes to get rid of that. Whoever closes it last waits.

    The other end goes when this does, and with it the wait.
    """
    with socket.socket() as server:
        server.bind((_LOOPBACK, 0))
        server.listen()
        sender = socket.socket()
        sender.connect(server.getsockname())
        reader, _ = server.accept()
    with contextlib.suppress(BlockingIOError):
        sender.setblocking(False)
        while True:
            sender.send(bytes(1 << 20))
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 600))
    try:
        yield sender
    finally:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reader.close()  # with a reset
        sender.close()
