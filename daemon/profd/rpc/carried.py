"""Accepts for the door where descriptors may be passed over a connection (passed.py): porters read it, and the door the
end of a pair.

Accepting a connection, and asking the kernel for its user, drops no descriptor; reading or closing it may.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import Final

from profd._host import Door
from profd.attached.agents.porters import NotCarried, Porters
from profd.fairness.rare_line import RareLine
from profd.fairness.rates import Rate
from profd.fairness.reception import Reception
from profd.kernel.peer import Peer
from profd.limits import CARRIED_CONNECTIONS_BURST, CARRIED_CONNECTIONS_PER_SECOND

# Each costs the event loop a pair of sockets and some words to a porter; the door, which counts them, comes after that.
_RATE: Final = Rate("connections", "connections", CARRIED_CONNECTIONS_PER_SECOND, CARRIED_CONNECTIONS_BURST)

log = logging.getLogger("profd.rpc")


class CarriedAccept:
    """Takes connections of a listening socket to the door. On the event loop's thread."""

    def __init__(self, door: Door, porters: Porters, admins: int) -> None:
        """`admins`: the group whose members have no limit."""
        self._door = door
        self._porters = porters
        self._lost = RareLine(log, "a connection could not be carried")
        self._reception = Reception(_RATE, self._come, closing=porters.droppers, refused=self._refused, admins=admins)
        self.refused = 0  # connections of who connects too often,
        self.refused_uid = 0  # and whose was the last

    def set_admins(self, admins: int) -> None:
        """Set the group whose members have no limit from now on."""
        self._reception.set_admins(admins)

    def listen(self, listener: socket.socket) -> None:
        """Accept on this socket from now on, which becomes ours; the one before is closed."""
        self._reception.listen(listener)

    def refuse(self) -> None:
        """Accept no more."""
        self._reception.close()

    def _come(self, connection: socket.socket, _peer: Peer) -> None:
        try:
            uid, free = self._door.who(connection.fileno())
            ours = connection if uid in (0, os.geteuid()) else self._porters.stream(uid, connection)
        except (NotCarried, OSError) as error:
            self._lost.tell(why=str(error))
            self._porters.droppers.drop(connection)
            return
        self._door.take(ours.detach(), uid, free)

    def _refused(self, count: int, uid: int) -> None:
        self.refused += count
        self.refused_uid = uid
