"""One dropper, from the daemon's side: it closes sockets in which descriptors of a user may lie.

It has a thread that closes, which may wait for ever, and one that takes what comes, which waits for nobody: what comes
meanwhile is held. docs/decisions/0051-droppers.md.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass

from profd.attached.agents import porter_calls
from profd.attached.agents.porter_process import Identity, PorterProcess
from profd.limits import DROPPER_DESCRIPTORS_MAX, DROPPER_LOOK_SECONDS, PORTER_IDLE_SECONDS


@dataclass(frozen=True, slots=True)
class Dropped:
    """Sockets that came and were not surely empty, and how many of them are closed; both modulo 2**32."""

    came: int = 0
    closed: int = 0

    @property
    def held(self) -> int:
        """How many wait to be closed."""
        return (self.came - self.closed) % 2**32


class Dropper(PorterProcess):
    """A running dropper. It ends when nothing came for PORTER_IDLE_SECONDS, and nothing is held."""

    PROGRAM = "profd-dropper"

    def __init__(
        self,
        identity: Identity,
        *,
        failed: Callable[[Dropper], object],
        ended: Callable[[Dropper], object],
        stuck: Callable[[Dropper], object],
    ) -> None:
        """As every PorterProcess. `failed`: it may hold what it can, too. `stuck`: what it closes is not closed yet."""
        self.seen = Dropped()
        self._stuck = stuck
        self._looks_idle = 0
        super().__init__(
            identity,
            descriptors=DROPPER_DESCRIPTORS_MAX,
            calls=porter_calls.of_droppers(),
            failed=lambda: failed(self),
            ended=lambda: ended(self),
        )
        self._next = self._look_later()

    def drop(self, sock: socket.socket) -> None:
        """Have it close a socket, whose copy here is closed. OSError, and it is still the caller's, if it cannot."""
        self._looks_idle = 0
        self._hand("d", sock)

    def wait_for_room(self, seconds: float) -> None:
        """Until it takes more, perhaps."""
        if self._control.fileno() >= 0:
            select.select([], [self._control], [], seconds)

    def end(self) -> None:
        """Have it end: what it holds goes with it."""
        self._next.cancel()
        super().end()

    def _look_later(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(DROPPER_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._next = self._look_later()
        self.poke()

    def _answered(self, said: bytes) -> None:
        came, _, closed = said.partition(b" ")
        if not (came.isdigit() and closed.isdigit()):
            self._failed()
            return
        before, self.seen = self.seen, Dropped(int(came), int(closed))
        self._looks_idle = self._looks_idle + 1 if self.seen == before and not self.seen.held else 0
        if self.seen.held and self.seen.closed == before.closed and before.held:
            self._stuck(self)
        elif self._looks_idle * DROPPER_LOOK_SECONDS >= PORTER_IDLE_SECONDS:
            self.end()
