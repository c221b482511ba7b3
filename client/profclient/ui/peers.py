"""The user at the other end of a connection on loopback, by the kernel's word."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Final

_TABLE: Final = Path("/proc/net/tcp")
_LOCAL, _REMOTE, _STATE, _UID = 1, 2, 3, 7  # columns, as in Documentation/networking/proc_net_tcp.rst
_ESTABLISHED: Final = "01"  # a socket that nobody holds any more is in another state, and said to be root's


def uid_of_peer(connection: socket.socket) -> int | None:
    """The uid that made the socket at the other end; None where it is on another host, or has ended.

    Raises OSError where the kernel's table cannot be read.
    """
    ends = (_written(connection.getpeername()), _written(connection.getsockname()))
    with _TABLE.open(encoding="ascii") as lines:
        for line in lines:
            columns = line.split()
            if (columns[_LOCAL], columns[_REMOTE]) == ends and columns[_STATE] == _ESTABLISHED:
                return int(columns[_UID])
    return None


def _written(address: tuple[str, int]) -> str:
    """As the table has it: the address in the byte order of this machine, the port in that of people."""
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"
