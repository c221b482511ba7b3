"""One porter, from the daemon's side: it takes over connections of a user. docs/decisions/0013-porters.md."""

from __future__ import annotations

import array
import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

from profd.attached.agents import porter_calls
from profd.attached.agents.porter_process import Identity, PorterProcess
from profd.kernel import passed
from profd.kernel.freeing import let_go
from profd.kernel.rights import received_descriptors
from profd.limits import AGENTS_MAX, PORTER_IDLE_SECONDS

_DESCRIPTORS: Final = 2 * AGENTS_MAX + 64
_ANCILLARY_BYTES: Final = socket.CMSG_LEN(array.array("i").itemsize)  # of one descriptor


class Relay:
    """A connection that a porter has taken over: `socket` is our end of the pair, to be closed through this."""

    __slots__ = ("_porter", "on_cut", "socket")

    def __init__(self, porter: Porter, sock: socket.socket) -> None:
        self.socket = sock
        self.on_cut: Callable[[], object] | None = None  # its porter was killed: nothing more will come
        self._porter = porter

    def poke(self) -> None:
        """See whether the porter still answers; it is killed if not."""
        self._porter.poke()

    def close(self) -> None:
        """The porter closes the connection, behind what we have sent. Safe to repeat."""
        _let_go_of_unread(self.socket)
        self.socket.close()
        self._porter.left(self)


class Porter(PorterProcess):
    """A running porter, which whoever starts it ends."""

    PROGRAM = "profd-porter"

    def __init__(
        self, identity: Identity, *, failed: Callable[[Porter], object], ended: Callable[[Porter], object]
    ) -> None:
        """As every PorterProcess."""
        self._relays: set[Relay] = set()
        self._streams = False  # it may have some: only it knows
        self._idle: asyncio.TimerHandle | None = None
        super().__init__(
            identity,
            descriptors=_DESCRIPTORS,
            calls=porter_calls.of_porters(),
            failed=lambda: failed(self),
            ended=lambda: ended(self),
        )

    def relay(self, connection: socket.socket) -> Relay:
        """Hand over a connection, whose copy here is closed. OSError, and it is still the caller's, if it is stuck."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        relay = Relay(self, ours)
        try:
            with theirs:
                self._hand("c", connection, theirs)
        except OSError:
            ours.close()
            raise
        self._relays.add(relay)
        self._stop_waiting()
        self.poke()
        return relay

    def stream(self, connection: socket.socket) -> socket.socket:
        """Hand over a connection of bytes, whose copy here is closed: our end of its relay, to be closed as any socket.

        OSError, and the connection is still the caller's, if it is stuck.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        passed.take_none(ours)
        ours.setblocking(False)
        try:
            with theirs:
                self._hand("s", connection, theirs)
        except OSError:
            ours.close()
            raise
        self._streams = True
        self.poke()
        self._wait_for_more()
        return ours

    def left(self, relay: Relay) -> None:
        """Its end is closed here."""
        if relay in self._relays:
            self._relays.discard(relay)
            self.poke()
            self._wait_for_more()

    def kill(self) -> None:
        """Its connections end, for us at once, and for the agents when it is gone."""
        super().kill()
        for relay in list(self._relays):
            if relay in self._relays and relay.on_cut is not None:
                relay.on_cut()

    def end(self) -> None:
        """Have it end, by itself, when it has done what it was told."""
        self._stop_waiting()
        super().end()

    def _answered(self, said: bytes) -> None:
        self._streams = said == b"b"

    def _wait_for_more(self) -> None:
        if not self._relays and not self.dying:
            self._stop_waiting()
            self._idle = asyncio.get_running_loop().call_later(PORTER_IDLE_SECONDS, self._idle_over)

    def _idle_over(self) -> None:
        """Nothing is relayed to us; of streams it was asked the last time that this passed, and is asked again."""
        if self._streams:
            self.poke()
            self._wait_for_more()
        else:
            self.end()

    def _stop_waiting(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None


def _let_go_of_unread(sock: socket.socket) -> None:
    """What nobody has read may be the last descriptors of memory, which a close of the socket would free."""
    with contextlib.suppress(OSError):  # closed already, or there is nothing more
        sock.shutdown(socket.SHUT_RD)
        while True:
            said, ancillary, _, _ = sock.recvmsg(1, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
            for fd in received_descriptors(ancillary):
                let_go(fd)
            if not said:
                return
