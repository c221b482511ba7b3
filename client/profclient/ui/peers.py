"""The user at the other end of a connection on loopback, by the kernel's word.

The kernel is asked about that one socket, which takes microseconds however many there are. Where it takes no such
questions (a sandbox may refuse netlink), its table of all sockets is read.
"""

from __future__ import annotations

import errno
import socket
import struct
from pathlib import Path
from typing import Final

from profclient.ui.sockdiag import ESTABLISHED, NOWHERE, End, SockDiag

_TABLES: Final = {4: Path("/proc/net/tcp"), 16: Path("/proc/net/tcp6")}  # by the length of an address
_LOCAL, _REMOTE, _STATE, _UID = 1, 2, 3, 7  # columns, as in Documentation/networking/proc_net_tcp.rst


class Peers:
    """Whose the connections of one server are."""

    def __init__(self) -> None:
        """Raises OSError where the kernel does not tell users apart."""
        self._kernel = _kernel()
        if self._kernel is None:
            _TABLES[4].open().close()

    def close(self) -> None:
        """Look up no more."""
        if self._kernel is not None:
            self._kernel.close()

    def uid_of(self, connection: socket.socket) -> int | None:
        """The uid that made the socket at the other end; None where it is on another host, or has ended.

        Raises OSError where the kernel does not say.
        """
        try:
            theirs, ours = End.of(connection.getpeername()), End.of(connection.getsockname())
        except OSError as error:
            if error.errno == errno.ENOTCONN:  # it was reset
                return None
            raise
        if self._kernel is None:
            return uid_in_table(theirs, ours)
        found = self._kernel.find(theirs, ours)
        # A socket that nobody holds any more is in another state, and said to be root's.
        return found.uid if found is not None and found.state == ESTABLISHED else None


def _kernel() -> SockDiag | None:
    """A way to ask; None where a socket of ours is not found, since "no such question" is answered as that is."""
    try:
        asking = SockDiag()
    except OSError:
        return None
    with socket.create_server(("127.0.0.1", 0)) as ours:
        try:
            if asking.find(End.of(ours.getsockname()), NOWHERE) is not None:
                return asking
        except OSError:
            pass
    asking.close()
    return None


def uid_in_table(own: End, other: End) -> int | None:
    """The same from the table of all sockets. Raises OSError where it cannot be read."""
    ends = (_written(own), _written(other))
    with _TABLES[len(own.address)].open(encoding="ascii") as lines:
        for line in lines:
            columns = line.split()
            if (columns[_LOCAL], columns[_REMOTE]) == ends and int(columns[_STATE], 16) == ESTABLISHED:
                return int(columns[_UID])
    return None


def _written(end: End) -> str:
    """As the table has it: the address in the byte order of this machine, the port in that of people."""
    words = struct.unpack(f"={len(end.address) // 4}I", end.address)
    return "".join(f"{word:08X}" for word in words) + f":{end.port:04X}"
