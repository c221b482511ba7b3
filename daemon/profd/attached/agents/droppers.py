"""All droppers: one of each user who has sent something that nobody reads, made when it is needed.

What a user passes may hold up the dropper of that user, which then holds what comes. One that is full is left alone,
and another one begins; there are few of these for a user (docs/decisions/0051-droppers.md).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import time
from collections import Counter, deque
from typing import Final

from profd import _host
from profd.attached.agents.dropper import Dropper
from profd.attached.agents.porter_process import Identity
from profd.fairness.rare_line import RareLine
from profd.kernel.peer import peer_of
from profd.limits import DROPPERS_FULL_HOST_MAX, DROPPERS_FULL_MAX, DROPPERS_MAX, DROPS_WAITING_MAX

_SHARED: Final = -1  # of users beyond DROPPERS_MAX
_AGAIN_SECONDS: Final = 0.02  # for one that takes nothing now
_END_SECONDS: Final = 1.0  # the same, where the daemon ends

log = logging.getLogger("profd.agents")


class Droppers:
    """All that run, by uid. `close` when done."""

    def __init__(self, identity: Identity) -> None:
        """`identity`: as whom they run."""
        self._identity = identity
        self._of: dict[int, Dropper] = {}
        self._dying: dict[Dropper, int] = {}
        self._waiting: dict[int, deque[socket.socket]] = {}  # none of them empty
        self._again: asyncio.TimerHandle | None = None
        self._stuck = RareLine(log, "what a user has passed cannot be closed, and is held")
        self._failed_line = RareLine(log, "a dropper is full, has ended, or did not answer: another one begins")
        self.native = _host.Droppers()
        """The same for threads that need no Python."""

    @property
    def pids(self) -> list[int]:
        """Of all that are there, those that were given up included."""
        return sorted(dropper.pid for dropper in self._all())

    @property
    def waiting(self) -> int:
        """Sockets that are still ours."""
        return sum(len(waiting) for waiting in self._waiting.values())

    @property
    def held(self) -> int:
        """Sockets that wait to be closed, as was last heard."""
        return sum(dropper.seen.held for dropper in self._all())

    def drop(self, sock: socket.socket) -> None:
        """Have a socket closed by somebody who may wait for that."""
        uid = peer_of(sock).uid  # of a listening socket ours
        key = uid if uid in self._of or len(self._of) < DROPPERS_MAX else _SHARED
        if key in self._waiting:
            self._waiting[key].append(sock)
        elif not self._dropped(key, sock):
            self._waiting[key] = deque([sock])
            self._try_again_later()

    def drop_again(self) -> bool:
        """Whether there is room for more: nothing is closed here while no process can be started."""
        self._drop_waiting()
        self._try_again_later()
        return self.waiting < DROPS_WAITING_MAX

    def _drop_waiting(self) -> bool:
        """Whether there is nothing more."""
        for key, waiting in list(self._waiting.items()):
            while waiting and self._dropped(key, waiting[0]):
                waiting.popleft()
            if not waiting:
                del self._waiting[key]
        return not self._waiting

    def _try_again_later(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._waiting:
            self._again = asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self.drop_again)

    def close(self) -> list[Dropper]:
        """No more is dropped: the caller ends these. What nobody takes within a second ends with the daemon."""
        deadline = time.monotonic() + _END_SECONDS
        while not self._drop_waiting() and time.monotonic() < deadline:
            for dropper in self._of.values():
                dropper.wait_for_room(_AGAIN_SECONDS)
        for sock in itertools.chain.from_iterable(self._waiting.values()):
            sock.detach()  # a close may never end
        self._waiting.clear()
        self._try_again_later()
        return self._all()

    def _all(self) -> list[Dropper]:
        return [*self._of.values(), *self._dying]

    def _dropped(self, key: int, sock: socket.socket) -> bool:
        try:
            dropper = self._begun(key)
            if dropper is None:
                return False
            dropper.drop(sock)
        except BlockingIOError:  # more than it has taken yet
            self._of[key].poke()
            return False
        except OSError:  # it has ended, and nobody has seen that yet; or none can be started
            self._give_up(key)
            return False
        return True

    def _begun(self, key: int) -> Dropper | None:
        """The one of this user; None: too many were given up, and are there yet. Raises OSError."""
        dropper = self._of.get(key)
        if dropper is not None and not dropper.dying:
            return dropper
        self._give_up(key)
        if len(self._dying) >= DROPPERS_FULL_HOST_MAX or Counter(self._dying.values())[key] >= DROPPERS_FULL_MAX:
            return None
        dropper = self._of[key] = Dropper(self._identity, failed=self._failed, ended=self._ended, stuck=self._is_stuck)
        self._use(key, dropper.words)
        return dropper

    def _is_stuck(self, dropper: Dropper) -> None:
        self._stuck.tell(self._user(dropper), pid=dropper.pid, held=dropper.seen.held)

    def _failed(self, dropper: Dropper) -> None:
        key = self._user(dropper)
        self._failed_line.tell(key, pid=dropper.pid)
        if self._of.get(key) is dropper:
            self._give_up(key)

    def _user(self, dropper: Dropper) -> int:
        return next((key for key, known in self._of.items() if known is dropper), self._dying.get(dropper, _SHARED))

    def _give_up(self, key: int) -> None:
        """It takes nothing (any more). What it holds goes when it can."""
        dropper = self._of.pop(key, None)
        if dropper is not None:
            self._use(key, None)
            self._dying[dropper] = key
            if not dropper.dying:
                dropper.kill()

    def _ended(self, dropper: Dropper) -> None:
        self._dying.pop(dropper, None)
        for key in [key for key, known in self._of.items() if known is dropper]:
            del self._of[key]
            self._use(key, None)

    def _use(self, key: int, words: _host.PorterWords | None) -> None:
        if key != _SHARED:
            self.native.use(key, words)
