"""All porters: one of each user who is connected, and container of that user; and the droppers beside them.

A container's descriptors hold up its own porter. It is killed when it does not answer, its agents connect again, and
a new one takes them. One that cannot be killed yet (it waits for a file system) is left alone; there are few of these
for a container, and for a user (docs/decisions/0036-containers.md).
"""

from __future__ import annotations

import logging
import socket
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

from profd.attached.agents.droppers import Droppers
from profd.attached.agents.porter import Porter, Relay
from profd.attached.agents.porter_process import Identity, end_all
from profd.fairness.rare_line import RareLine
from profd.kernel import nobody
from profd.limits import (
    PORTERS_KEPT,
    PORTERS_MAX,
    PORTERS_PER_UID_MAX,
    PORTERS_STUCK_MAX,
)

Key = tuple[int, int]
"""uid and container."""

_SHARED: Final = (-1, 0)  # of users beyond PORTERS_MAX
_OTHERS: Final = -2  # containers of a user beyond those that have one of their own

log = logging.getLogger("profd.agents")
Carried = TypeVar("Carried")


class NotCarried(Exception):
    """No porter takes this connection over; str() is a sentence, or empty where the next try may do better."""


class Porters:
    """Porters are started when they are needed. `close` when done."""

    def __init__(self, *, change_identity: bool = False) -> None:
        """`change_identity`: they run as nobody's uid (nobody.py), else as the daemon."""
        self._identity: Identity = (nobody.PORTERS, nobody.PORTERS) if change_identity else None
        self._porters: dict[Key, Porter] = {}
        self._dying: dict[Porter, Key] = {}
        self.droppers = Droppers(self._identity)
        self._stuck = RareLine(log, "a porter of agents has ended, or did not answer")

    @property
    def pids(self) -> list[int]:
        """Of those that take connections."""
        return sorted(porter.pid for porter in self._porters.values())

    def relay(self, uid: int, connection: socket.socket, container: int = 0) -> Relay:
        """Have a connection of this user carried; its copy here is closed. NotCarried: it is still the caller's."""
        return self._handed(uid, container, lambda porter: porter.relay(connection))

    def stream(self, uid: int, connection: socket.socket) -> socket.socket:
        """Have a caller's connection carried, as bytes: our end of that. NotCarried: it is still the caller's."""
        return self._handed(uid, 0, lambda porter: porter.stream(connection))

    def _handed(self, uid: int, container: int, hand: Callable[[Porter], Carried]) -> Carried:
        key = self._key(uid, container)
        try:
            try:
                return hand(self._of(key))
            except (BrokenPipeError, ConnectionResetError):  # it has ended, and nobody has seen that yet
                self._replace(key)
                return hand(self._of(key))
        except OSError as error:  # its queue is full, and it is killed if it stays so; or none can be started
            raise NotCarried from error

    def close(self) -> None:
        """All connections end; those who wait for a file system are left to it."""
        end_all([*self._porters.values(), *self._dying, *self.droppers.close()])

    def _key(self, uid: int, container: int) -> Key:
        key, there = (uid, container), [*self._porters, *self._dying.values()]
        if key in self._porters or there.count(key) >= PORTERS_STUCK_MAX:
            return key
        of_user = sum(other == uid for other, _ in there)
        if not of_user:
            return key if len(there) < PORTERS_MAX else _SHARED
        if of_user < PORTERS_PER_UID_MAX and len(there) < PORTERS_MAX - PORTERS_KEPT:
            return key
        return uid, _OTHERS

    def _of(self, key: Key) -> Porter:
        porter = self._porters.get(key)
        if porter is not None and not porter.dying:
            return porter
        self._replace(key)
        if Counter(self._dying.values())[key] >= PORTERS_STUCK_MAX:
            raise NotCarried("the descriptors that your processes have passed cannot be closed yet: try later")
        porter = self._porters[key] = Porter(self._identity, failed=self._failed, ended=self._ended)
        return porter

    def _failed(self, porter: Porter) -> None:
        for key in [key for key, known in self._porters.items() if known is porter]:
            self._stuck.tell(key[0], pid=porter.pid)
            self._replace(key)

    def _replace(self, key: Key) -> None:
        """It takes nothing (any more), and makes place."""
        porter = self._porters.pop(key, None)
        if porter is not None:
            self._dying[porter] = key
            if not porter.dying:
                porter.kill()

    def _ended(self, porter: Porter) -> None:
        self._dying.pop(porter, None)
        for key in [key for key, known in self._porters.items() if known is porter]:
            del self._porters[key]
