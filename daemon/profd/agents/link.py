"""One connection of an agent: packets and descriptors in, packets out.

Read in `add_reader` callbacks: asyncio's transports know no SEQPACKET and lose
descriptors (docs/facts/recorder-and-agent.md).
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import socket
import time
from typing import Final, Protocol

from profd.agents.protocol import Hostile
from profd.limits import AGENT_PACKET_BYTES_MAX, AGENT_PACKETS_PER_SECOND_MAX, AGENT_PACKETS_WAITING_MAX
from profd.rights import received_descriptors

_BATCH: Final = 16  # packets per wake-up: an agent that floods us must not hold the loop
# Room for one descriptor exactly (CMSG_SPACE would leave room for two).
_ANCILLARY_BYTES: Final = socket.CMSG_LEN(array.array("i").itemsize)


class Receiver(Protocol):
    """Who hears of what arrives."""

    def received(self, packet: bytes, fd: int | None) -> None:
        """One packet; the descriptor is the receiver's to close. Hostile closes the link."""
        ...

    def ended(self, why: str) -> None:
        """The connection is over (once); `why` is empty when the peer has closed it."""
        ...


class Link:
    """A connected, non-blocking SEQPACKET socket, which it owns. `receiver` may be changed between packets."""

    __slots__ = ("_looked", "_may_come", "_socket", "receiver")

    def __init__(self, connection: socket.socket, receiver: Receiver) -> None:
        self._socket: socket.socket | None = connection
        self.receiver = receiver
        self._looked = time.monotonic()
        self._may_come = float(AGENT_PACKETS_PER_SECOND_MAX)
        connection.setblocking(False)
        asyncio.get_running_loop().add_reader(connection.fileno(), self.read)

    @property
    def open(self) -> bool:
        """Neither side has closed it, as far as is known."""
        return self._socket is not None

    def send(self, packet: bytes) -> bool:
        """Send now; False if it cannot be taken: the peer is gone, or has not read for long."""
        if self._socket is None:
            return False
        try:
            self._socket.send(packet, socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def hung_up(self) -> bool:
        """Whether the peer has closed its end, also when nobody has read that yet."""
        if self._socket is None:
            return True
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Close without a word to the receiver; idempotent."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def read(self) -> None:
        """Take what has arrived, a bounded number of packets."""
        for _ in range(_BATCH):
            if self._socket is None:
                return
            try:
                packet, ancillary, flags, _ = self._socket.recvmsg(
                    AGENT_PACKET_BYTES_MAX, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except ConnectionResetError:  # closed with something unread in it
                self._end("")
                return
            except OSError as error:
                self._end(error.strerror or "read failed")
                return
            fds = received_descriptors(ancillary)
            if not packet and not fds:
                self._end("")
                return
            try:
                self._check(flags, fds)
            except Hostile as error:
                _close(fds)
                self._end(str(error))
                return
            self._deliver(packet, fds[0] if fds else None)

    def _deliver(self, packet: bytes, fd: int | None) -> None:
        try:
            self.receiver.received(packet, fd)
        except Hostile as error:
            self._end(str(error))

    def _check(self, flags: int, fds: list[int]) -> None:
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) or len(fds) > 1:
            raise Hostile("a packet too long, or with more descriptors than one")
        # Told when it is read: where we stood still, what was said in that time comes at once.
        now = time.monotonic()
        earned = (now - self._looked) * AGENT_PACKETS_PER_SECOND_MAX
        self._looked, self._may_come = now, min(self._may_come + earned, AGENT_PACKETS_WAITING_MAX) - 1
        if self._may_come < 0:
            raise Hostile(f"more than {AGENT_PACKETS_PER_SECOND_MAX} packets in a second")

    def _end(self, why: str) -> None:
        self.close()
        self.receiver.ended(why)


def _close(fds: list[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
