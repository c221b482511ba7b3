"""A process that has descriptors of others and may wait for them, from our side (`native/porter` is the other).

The daemon takes no descriptor that a target has passed but sealed memory, and never closes a socket in whose queue one
may lie: both may wait for as long as its sender likes. docs/decisions/0013-porters.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from profd import _host
from profd.kernel import passed
from profd.limits import PORTER_ANSWERS_SECONDS

_END_SECONDS: Final = 1.0  # until those that do not end are killed, and then left, where the daemon ends

FULL: Final = b"f"
"""A word of one that takes nothing more."""

Identity = tuple[int, int] | None
"""uid and gid; None: the daemon's own."""


class PorterProcess(ABC):
    """A running one, which whoever starts it ends."""

    PROGRAM: str
    """Its file, beside the daemon's native parts."""

    def __init__(
        self,
        identity: Identity,
        *,
        descriptors: int,
        calls: bytes,
        failed: Callable[[], object],
        ended: Callable[[], object],
    ) -> None:
        """Start it: some milliseconds. OSError if that is impossible.

        `descriptors`: the most that it may have. `calls`: its filter (porter_calls.py). `failed`: it does not answer,
        or has ended by itself: to be killed. `ended`: its process is no more.
        """
        self.dying = False  # told to end, or killed
        self._failed = failed
        self._ended = ended
        self._asked: asyncio.TimerHandle | None = None
        self._again = False
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        passed.take_none(self._control)
        self._control.setblocking(False)
        self.words = _host.PorterWords(self._control.fileno())
        uid, gid = identity or (-1, -1)
        try:
            with theirs:
                # Its identity it changes by itself: until then nobody but root can look into it.
                self._process = subprocess.Popen(
                    [
                        str(Path(str(_host.__file__)).with_name(self.PROGRAM)),
                        *(str(number) for number in (uid, gid, descriptors)),
                    ],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env={},
                )
            self._pidfd = os.pidfd_open(self._process.pid)
        except OSError:
            self._control.close()
            raise
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pidfd, self.reap)
        loop.add_reader(self._control.fileno(), self._hear)
        with contextlib.suppress(OSError):  # it has ended already, which is heard
            self._control.send(calls, socket.MSG_NOSIGNAL)

    @property
    def pidfd(self) -> int:
        """Readable once it has ended; -1 once that was seen."""
        return self._pidfd

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def poke(self) -> None:
        """See whether it still does what it is told; it is killed if not."""
        self._again = self._asked is not None  # an answer that is under way may be from before
        if self._asked is None and not self.dying:
            with contextlib.suppress(OSError):  # then it does not read either
                self.words.say("p")
            self._asked = asyncio.get_running_loop().call_later(PORTER_ANSWERS_SECONDS / 2, self._silent)

    def kill(self) -> None:
        """It ends when it waits for nothing more that cannot be ended."""
        self.end()
        self._process.kill()

    def end(self) -> None:
        """Have it end, by itself, when it has done what it was told."""
        self.dying = True
        if self._asked is not None:
            self._asked.cancel()
            self._asked = None
        if self._control.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self.words.end()
            self._control.close()

    def reap(self) -> None:
        """Its process has ended, or does not, and the daemon does: it is killed with us."""
        if self._pidfd < 0:
            return
        self.end()
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
        self._process.poll()  # None where it is still there: the daemon ends, and does not wait
        self._process.returncode = self._process.returncode or 0
        self._ended()

    @abstractmethod
    def _answered(self, said: bytes) -> None:
        """What it has said to a question behind which nothing was handed over."""

    def _hand(self, word: str, *sockets: socket.socket) -> None:
        """Give it these, whose copies here are then closed. Raises OSError: they are still the caller's."""
        self.words.hand(word, *(sock.fileno() for sock in sockets))
        for sock in sockets:
            sock.detach()

    def _hear(self) -> None:
        """It answers, or has ended."""
        try:
            said = self._control.recv(32)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if said in (b"", FULL):
            self._failed()
        elif self._asked is not None:
            self._asked.cancel()
            self._asked = None
            if self._again:
                self.poke()
            else:
                self._answered(said)

    def _silent(self) -> None:
        """It has not answered, or we have not read for long: then it has as much time again."""
        self._hear()
        if self._asked is not None:
            self._asked = asyncio.get_running_loop().call_later(PORTER_ANSWERS_SECONDS / 2, self._failed)


def end_all(porters: Collection[PorterProcess]) -> None:
    """The daemon ends: wait for them a moment. Then they are killed, but for those that wait for a file system."""
    for porter in porters:
        porter.end()
    if not _have_ended(porters):
        for porter in porters:
            porter.kill()
        _have_ended(porters)
    for porter in porters:
        porter.reap()


def _have_ended(porters: Collection[PorterProcess]) -> bool:
    deadline = time.monotonic() + _END_SECONDS
    waiting = {porter.pidfd for porter in porters if porter.pidfd >= 0}
    poll = select.poll()
    for pidfd in waiting:
        poll.register(pidfd, select.POLLIN)
    while waiting:
        ended = [pidfd for pidfd, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000)]
        if not ended:
            return False
        for pidfd in ended:
            poll.unregister(pidfd)
        waiting.difference_update(ended)
    return True
