"""Descriptors that came with a message over a Unix socket."""

from __future__ import annotations

import array
import socket


def received_descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    """Every descriptor that came: all are open now, whatever else is wrong with the message."""
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return list(fds)
