"""The process at the other end of a Unix socket, by the kernel, as it was when it connected."""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Final, NamedTuple

_SO_PEERPIDFD: Final = 77  # Linux 6.5
_UCRED: Final = struct.Struct("=iII")


class Peer(NamedTuple):
    """What SO_PEERCRED says. A pid of 0: it is in another pid namespace."""

    pid: int
    uid: int
    gid: int


def peer_of(sock: socket.socket) -> Peer:
    """Of a connected socket. Of what a reception has accepted this is known already. Raises OSError."""
    return Peer(*_UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)))


def pidfd_of(sock: socket.socket, peer: Peer) -> int:
    """A descriptor of that process; asked last, it tells whether what was read by the pid is another one's.

    OSError where it cannot be seen, or has ended.
    """
    if peer.pid <= 0:
        raise OSError(errno.ESRCH, "it is in another pid namespace")
    try:
        return sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
        return os.pidfd_open(peer.pid)
