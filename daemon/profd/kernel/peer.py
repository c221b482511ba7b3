"""The process at the other end of a Unix socket, by the kernel, as it was when it connected."""

from __future__ import annotations

import socket
import struct
from typing import Final, NamedTuple

_UCRED: Final = struct.Struct("=iII")


class Peer(NamedTuple):
    """What SO_PEERCRED says. A pid of 0: it is in another pid namespace."""

    pid: int
    uid: int
    gid: int


def peer_of(sock: socket.socket) -> Peer:
    """Of a connected socket. Of what a reception has accepted this is known already. Raises OSError."""
    return Peer(*_UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))
