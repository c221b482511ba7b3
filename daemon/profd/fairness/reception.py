"""Connections to a socket of the daemon, accepted by a thread that needs no Python (native/host/reception.h), which
answers and closes itself whoever of them connects too often. The event loop sees the others.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, Protocol

from profd import _host
from profd.fairness.rates import Rate
from profd.kernel import nobody
from profd.kernel.peer import Peer
from profd.limits import RATES_USERS_MAX, RECEPTION_WAITING_MAX

NO_GROUP: Final = 2**32 - 1
_BATCH: Final = 16  # in a turn of the loop: what else waits for it waits as long as these take
_PAUSE_SECONDS: Final = 0.1  # while nobody closes what is to be closed


class Closing(Protocol):
    """Closes sockets in which descriptors may lie that were passed: who closes these may wait."""

    native: _host.Droppers
    """How the thread has one closed."""

    def drop(self, connection: socket.socket, /) -> None:
        """Have it closed."""

    def drop_again(self) -> bool:
        """Whether there is room for more."""


class Reception:
    """Accepts on listening sockets, one after the other, which it owns."""

    def __init__(
        self,
        rate: Rate,
        admit: Callable[[socket.socket, Peer], object],
        *,
        closing: Closing | None = None,
        answer: bytes = b"",
        refused: Callable[[int, int], object] = lambda count, uid: None,
        admins: int = NO_GROUP,
    ) -> None:
        """`admit`: gets connections, and whose they are, on the loop.

        `closing`: None where nobody can pass anything. `answer`: sent to who connects too often, of whom `refused` is
        told how many and the last uid. Root, who runs the daemon, members of the group `admins` and streamers, which
        are the daemon's own, are never among them.
        """
        self._rate = rate
        self._admit = admit
        self._closing = closing
        self._answer = answer
        self._refused = refused
        self._admins = admins
        self._native: _host.Reception | None = None
        self._kind = socket.SOCK_SEQPACKET
        self._resume: asyncio.Handle | None = None
        self._told = 0  # refused

    def set_admins(self, admins: int) -> None:
        """The group whose members may come as often as they like, from now on."""
        self._admins = admins
        if self._native is not None:
            self._native.set_admins(admins)

    def listen(self, listener: socket.socket) -> None:
        """Accept on this one from now on, on the running loop; the one before is closed. Raises OSError."""
        listener.setblocking(False)
        self._kind = listener.type
        if self._native is None:
            self._native = _host.Reception(
                per_second=self._rate.per_second,
                burst=self._rate.burst,
                waiting=RECEPTION_WAITING_MAX,
                users=RATES_USERS_MAX,
                admins=self._admins,
                streamers=nobody.STREAMER,
                refusal=self._answer,
                droppers=None if self._closing is None else self._closing.native,
            )
            asyncio.get_running_loop().add_reader(self._native.signal(), self._hear)
        before = self._native.listen(listener.detach())
        if before >= 0:  # those who wait there may have sent something already
            self._drop(before)

    def close(self) -> None:
        """Accept no more. Safe to repeat."""
        if self._native is None:
            return
        if self._resume is not None:
            self._resume.cancel()
        asyncio.get_running_loop().remove_reader(self._native.signal())
        for fd in self._native.close():
            self._drop(fd)
        self._look(self._native)
        self._native, self._told = None, 0

    def _hear(self) -> None:
        """Somebody has come, or was refused, or cannot be dropped."""
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        if self._native is None:
            return
        self._look(self._native)
        loop = asyncio.get_running_loop()
        if self._closing is not None and not self._closing.drop_again():
            self._resume = loop.call_later(_PAUSE_SECONDS, self._hear)  # then those who come wait in the kernel's queue
            return
        for fd in self._native.take_undropped():
            self._drop(fd)
        arrived = self._native.take(_BATCH)
        for fd, *peer in arrived:
            self._admit(socket.socket(socket.AF_UNIX, self._kind, 0, fd), Peer(*peer))
        if len(arrived) == _BATCH:
            self._resume = loop.call_soon(self._hear)

    def _look(self, native: _host.Reception) -> None:
        refused, uid = native.counts()
        before, self._told = self._told, refused
        if refused > before:
            self._refused(refused - before, uid)

    def _drop(self, fd: int) -> None:
        sock = socket.socket(fileno=fd)
        if self._closing is not None:
            self._closing.drop(sock)
        else:
            sock.close()
