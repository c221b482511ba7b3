"""Accepts for the door where descriptors may be passed over a connection (passed.py): porters read it, and the door the
end of a pair.

To accept, and to ask the kernel whose a connection is, drops nothing; to read it or to close it may.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from typing import Final

from profd._host import Door
from profd.attached.agents.porters import NotCarried, Porters
from profd.fairness.rare_line import RareLine

_ACCEPT_BATCH: Final = 16  # per wake-up: each costs the loop some ten microseconds
_PAUSE_SECONDS: Final = 0.1
_EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))

log = logging.getLogger("profd.rpc")


class CarriedAccept:
    """Takes connections of a listening socket to the door. On the event loop's thread."""

    def __init__(self, door: Door, porters: Porters) -> None:
        self._door = door
        self._porters = porters
        self._listener: socket.socket | None = None
        self._resume: asyncio.TimerHandle | None = None
        self._lost = RareLine(log, "a connection could not be carried")

    def listen(self, listener: socket.socket) -> None:
        """Accept on this one from now on; it is ours, and the one before is closed."""
        self.refuse()
        listener.setblocking(False)
        self._listener = listener
        self._watch()

    def refuse(self) -> None:
        """Accept no more. Those who wait there may have sent something already."""
        if self._resume is not None:
            self._resume.cancel()
            self._resume = None
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._porters.drop(self._listener)
            self._listener = None

    def _watch(self) -> None:
        self._resume = None
        if self._listener is not None:
            asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPT_BATCH):
            try:
                connection, _ = listener.accept()
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._pause(listener)
                return  # or nothing more
            self._admit(connection)
            if not self._porters.drop_again():
                self._pause(listener)
                return

    def _admit(self, connection: socket.socket) -> None:
        try:
            uid, free = self._door.who(connection.fileno())
            ours = connection if uid in (0, os.geteuid()) else self._porters.stream(uid, connection)
        except (NotCarried, OSError) as error:
            self._lost.tell(why=str(error))
            self._porters.drop(connection)
            return
        self._door.take(ours.detach(), uid, free)

    def _pause(self, listener: socket.socket) -> None:
        """The socket would stay readable, and keep the loop busy."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener.fileno())
        self._resume = loop.call_later(_PAUSE_SECONDS, self._watch)
