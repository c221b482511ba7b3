"""One TCP socket by its addresses, asked of the kernel: sock_diag(7), `struct inet_diag_req_v2` of linux/inet_diag.h.

It takes no capability and takes microseconds, where a dump or /proc/net/tcp goes through the sockets of all users.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from dataclasses import dataclass
from typing import Any, Final

ESTABLISHED: Final = 1
_NETLINK_SOCK_DIAG: Final = 4
_BY_FAMILY, _ERROR = 20, 2  # SOCK_DIAG_BY_FAMILY, NLMSG_ERROR
_NLM_F_REQUEST: Final = 1  # and not NLM_F_DUMP: one socket
_ANY_STATE: Final = 0xFFFFFFFF
_NO_COOKIE: Final = b"\xff" * 8
_KERNEL: Final = 0  # who sends, where others may send to a netlink socket
_HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ASKED: Final = struct.Struct("=BBBxI")  # family, protocol, extensions, states
_SOCKET: Final = struct.Struct("=2s2s16s16sI8s")  # ports and addresses as on the wire, interface, cookie
_FOUND: Final = struct.Struct("=BBBB")  # family, state, timer, retransmits
_UID_AT: Final = _HEADER.size + _FOUND.size + _SOCKET.size + 12  # after expires, rqueue, wqueue
_LONGEST: Final = 4096
_SECONDS: Final = 5.0  # the kernel answers before `send` returns
_MAPPED: Final = bytes(10) + b"\xff\xff"  # an IPv4 address as IPv6 writes it


@dataclass(frozen=True, slots=True)
class End:
    """One end of a connection; that of IPv4 is one whichever kind of socket it is."""

    address: bytes  # of 4 or 16, as on the wire
    port: int
    interface: int = 0  # of addresses that are good on one alone

    @classmethod
    def of(cls, name: tuple[Any, ...]) -> End:
        """Of what `getsockname` and `getpeername` give."""
        host = str(name[0]).partition("%")[0]
        packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
        return cls(_unmapped(packed), int(name[1]), int(name[3]) if len(name) > 3 else 0)


NOWHERE: Final = End(bytes(4), 0)
"""The other end of a socket that listens."""


@dataclass(frozen=True, slots=True)
class SocketState:
    """What the kernel says of a socket."""

    state: int
    uid: int  # 0 of a socket that nobody holds any more, too: see `state`


class SockDiag:
    """A way to ask. One thread at a time."""

    def __init__(self) -> None:
        """Raises OSError where there is none."""
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
        self._socket.settimeout(_SECONDS)
        self._asked = 0

    def close(self) -> None:
        """Ask no more."""
        self._socket.close()

    def find(self, own: End, other: End) -> SocketState | None:
        """The socket whose own end and other end these are; None where there is none. OSError where it is not told."""
        self._asked = (self._asked + 1) & 0xFFFFFFFF
        family = socket.AF_INET if len(own.address) == 4 else socket.AF_INET6
        ends = _SOCKET.pack(*_wire(own, other), own.interface, _NO_COOKIE)
        asked = _ASKED.pack(family, socket.IPPROTO_TCP, 0, _ANY_STATE) + ends
        self._socket.sendto(
            _HEADER.pack(_HEADER.size + len(asked), _BY_FAMILY, _NLM_F_REQUEST, self._asked, 0) + asked, (_KERNEL, 0)
        )
        return _read(self._answer(), own, other)

    def _answer(self) -> bytes:
        """To this question, by the kernel: whoever is root may send to this socket, too."""
        while True:
            answer, (sender, _) = self._socket.recvfrom(_LONGEST)
            if sender == _KERNEL and len(answer) >= _HEADER.size + 4 and _HEADER.unpack_from(answer)[3] == self._asked:
                return answer


def _read(answer: bytes, own: End, other: End) -> SocketState | None:
    kind = _HEADER.unpack_from(answer)[1]
    if kind == _ERROR:
        (number,) = struct.unpack_from("=i", answer, _HEADER.size)
        if number == -errno.ENOENT:
            return None
        raise OSError(-number, os.strerror(-number))
    _, state, _, _ = _FOUND.unpack_from(answer, _HEADER.size)
    ours, theirs, source, destination, _, _ = _SOCKET.unpack_from(answer, _HEADER.size + _FOUND.size)
    size = len(own.address)
    told = ours, theirs, *(_unmapped(address)[:size] for address in (source, destination))
    if told != (_port(own), _port(other), own.address, other.address):
        return None  # where no connection fits, the kernel gives whoever listens at that port
    return SocketState(state, *struct.unpack_from("=I", answer, _UID_AT))


def _wire(own: End, other: End) -> tuple[bytes, bytes, bytes, bytes]:
    return _port(own), _port(other), own.address, other.address  # `16s` fills up with zeros


def _port(end: End) -> bytes:
    return end.port.to_bytes(2, "big")


def _unmapped(address: bytes) -> bytes:
    return address[len(_MAPPED) :] if address.startswith(_MAPPED) else address
