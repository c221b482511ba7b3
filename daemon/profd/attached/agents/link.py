"""One connection of an agent, through its porter: packets and descriptors in, packets out.

Read in `add_reader` callbacks: asyncio's transports know no SEQPACKET and lose
descriptors (docs/facts/recorder-and-agent.md).
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import socket
import time
from typing import Final, Protocol

from profd.attached.agents.allowance import Allowance
from profd.attached.agents.porter import Relay
from profd.attached.agents.protocol import Hostile
from profd.kernel.freeing import let_go
from profd.kernel.rights import received_descriptors
from profd.limits import (
    AGENT_PACKET_BYTES_MAX,
    AGENT_PACKETS_PER_SECOND_MAX,
    AGENT_PACKETS_WAITING_MAX,
    PORTER_ANSWERS_SECONDS,
)

_BATCH: Final = 16  # packets per wake-up: an agent that floods us must not hold the loop
# Room for one descriptor exactly (CMSG_SPACE would leave room for two).
_ANCILLARY_BYTES: Final = socket.CMSG_LEN(array.array("i").itemsize)
# The first byte of what a porter says (native/porter/relay.h): a packet follows, or why there are no more.
_PACKET: Final = 0
_WHY: Final = {
    1: "a packet too long, or with more descriptors than one",
    2: "the arena is not sealed: only sealed files in memory are taken",
    3: "read failed",
    4: "",
}


class Receiver(Protocol):
    """The side that hears of packets, and of the end."""

    def received(self, packet: bytes, fd: int | None) -> None:
        """One packet; the descriptor is the receiver's to close. Hostile closes the link."""
        ...

    def ended(self, why: str) -> None:
        """The connection is over (once); `why` is empty when the peer has closed it."""
        ...

    def lost(self) -> None:
        """The connection is over (once), because its porter is: the peer will connect again."""
        ...


class PorterLink:
    """A connection that a porter relays. The porter owns our end. `receiver` may be changed between packets."""

    __slots__ = ("_allowance", "_ending", "_looked", "_may_come", "_relay", "receiver")

    def __init__(self, relay: Relay, receiver: Receiver, allowance: Allowance | None = None) -> None:
        """`allowance`: of its user; None: there is no limit beside its own."""
        self._relay: Relay | None = relay
        self._allowance = allowance
        self.receiver = receiver
        self._looked = time.monotonic()
        self._may_come = float(AGENT_PACKETS_PER_SECOND_MAX)
        self._ending: asyncio.TimerHandle | None = None
        relay.on_cut = self._lose
        asyncio.get_running_loop().add_reader(relay.socket.fileno(), self.read)

    @property
    def open(self) -> bool:
        """Neither side has closed it, as far as is known."""
        return self._relay is not None

    def send(self, packet: bytes) -> bool:
        """Send now; False if it cannot be taken: the peer is gone, or has not read for long."""
        if self._relay is None:
            return False
        try:
            self._relay.socket.send(packet, socket.MSG_NOSIGNAL)
        except OSError:
            return False
        self._relay.poke()
        return True

    def hung_up(self) -> bool:
        """Whether the peer has closed its end, also when nobody has read that yet."""
        if self._relay is None:
            return True
        try:
            said = self._relay.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            return not said or said[0] != _PACKET
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Close without a word to the receiver; idempotent."""
        if self._relay is not None:
            asyncio.get_running_loop().remove_reader(self._relay.socket.fileno())
            self._relay.close()
            self._relay = None
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None

    def finish(self) -> None:
        """Nobody is there any more: it ends behind what was said before, which the porter may still have."""
        if self._relay is None or self._ending is not None:
            return
        try:
            self._relay.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self._end("")
            return
        self._relay.poke()
        self._ending = asyncio.get_running_loop().call_later(PORTER_ANSWERS_SECONDS, self._end, "")

    def read(self) -> None:
        """Take what has arrived, a bounded number of packets."""
        for _ in range(_BATCH):
            if self._relay is None or self._must_wait(self._relay, self._allowance):
                return
            try:
                said, ancillary, flags, _ = self._relay.socket.recvmsg(
                    1 + AGENT_PACKET_BYTES_MAX, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except ConnectionResetError:  # closed with something unread in it, told once: what was said follows
                continue
            except OSError as error:
                self._end(error.strerror or "read failed")
                return
            fds = received_descriptors(ancillary)
            if self._allowance is not None:
                self._allowance.spend(len(said))
            if not said:
                self._lose()
                return
            if said[0] != _PACKET:
                _close(fds)
                self._end(_WHY.get(said[0], _WHY[3]))
                return
            try:
                self._check(flags, fds)
            except Hostile as error:
                _close(fds)
                self._end(str(error))
                return
            self._deliver(said[1:], fds[0] if fds else None)

    def _must_wait(self, relay: Relay, allowance: Allowance | None) -> bool:
        """Whether its user has said enough for now: what has arrived stays in the socket."""
        if allowance is None or allowance.left():
            return False
        asyncio.get_running_loop().remove_reader(relay.socket.fileno())
        allowance.wait(self._resume)
        return True

    def _resume(self) -> None:
        if self._relay is not None:
            asyncio.get_running_loop().add_reader(self._relay.socket.fileno(), self.read)
            self.read()

    def _deliver(self, packet: bytes, fd: int | None) -> None:
        try:
            self.receiver.received(packet, fd)
        except Hostile as error:
            self._end(str(error))

    def _check(self, flags: int, fds: list[int]) -> None:
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) or len(fds) > 1:  # we are out of descriptors, then
            raise Hostile(_WHY[1])
        # Told when it is read: where we stood still, what was said in that time comes at once.
        now = time.monotonic()
        earned = (now - self._looked) * AGENT_PACKETS_PER_SECOND_MAX
        self._looked, self._may_come = now, min(self._may_come + earned, AGENT_PACKETS_WAITING_MAX) - 1
        if self._may_come < 0:
            raise Hostile(f"more than {AGENT_PACKETS_PER_SECOND_MAX} packets in a second")

    def _lose(self) -> None:
        """Its porter was killed, or has ended."""
        self.close()
        self.receiver.lost()

    def _end(self, why: str) -> None:
        self.close()
        self.receiver.ended(why)


def _close(fds: list[int]) -> None:
    for fd in fds:
        with contextlib.suppress(OSError):
            let_go(fd)
