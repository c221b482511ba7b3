"""One porter process, from the daemon's side (`native/porter` is the other): it takes over connections of a user.

The daemon takes no descriptor that a target has passed but sealed memory, and never closes a socket in whose queue one
may lie: both may wait for as long as its sender likes. docs/decisions/0013-porters.md.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import select
import socket
import subprocess
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from profd import _host
from profd.attached.agents import porter_calls
from profd.kernel import passed
from profd.kernel.freeing import let_go
from profd.kernel.rights import received_descriptors
from profd.limits import AGENTS_MAX, PORTER_ANSWERS_SECONDS, PORTER_IDLE_SECONDS

_PROGRAM: Final = Path(str(_host.__file__)).with_name("profd-porter")
_DESCRIPTORS: Final = 2 * AGENTS_MAX + 64
_ANCILLARY_BYTES: Final = socket.CMSG_LEN(array.array("i").itemsize)  # of one descriptor
_END_SECONDS: Final = 1.0  # until those that do not end are killed, and then left, where the daemon ends

Identity = tuple[int, int] | None
"""uid and gid; None: the daemon's own."""


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


class Porter:
    """A running porter, which whoever starts it ends."""

    def __init__(
        self, identity: Identity, *, failed: Callable[[Porter], object], ended: Callable[[Porter], object]
    ) -> None:
        """Start it: some milliseconds. OSError if that is impossible.

        `failed`: it does not answer, or has ended by itself: to be killed. `ended`: its process is no more.
        """
        self.dying = False  # told to end, or killed
        self._failed = failed
        self._ended = ended
        self._relays: set[Relay] = set()
        self._asked: asyncio.TimerHandle | None = None
        self._again = False
        self._streams = False  # it may have some: only it knows
        self._idle: asyncio.TimerHandle | None = None
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        passed.take_none(self._control)
        self._control.setblocking(False)
        self.words = _host.PorterWords(self._control.fileno())
        uid, gid = identity or (-1, -1)
        try:
            with theirs:
                # Its identity it changes by itself: until then nobody but root can look into it.
                self._process = subprocess.Popen(
                    [str(_PROGRAM), str(uid), str(gid), str(_DESCRIPTORS)],
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
            self._control.send(porter_calls.program(), socket.MSG_NOSIGNAL)

    @property
    def pidfd(self) -> int:
        """Readable once it has ended; -1 once that was seen."""
        return self._pidfd

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

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

    def drop(self, sock: socket.socket) -> None:
        """Have it close a socket, whose copy here is closed. OSError, and it is still the caller's, if it is stuck."""
        self._hand("d", sock)
        self.was_given()

    def was_given(self) -> None:
        """It has something to close, of whoever has its `words`."""
        self.poke()
        self._wait_for_more()

    def poke(self) -> None:
        """See whether it still does what it is told; it is killed if not."""
        self._again = self._asked is not None  # an answer that is under way may be from before
        if self._asked is None and not self.dying:
            with contextlib.suppress(OSError):  # then it does not read either
                self.words.say("p")
            self._asked = asyncio.get_running_loop().call_later(PORTER_ANSWERS_SECONDS / 2, self._silent)

    def left(self, relay: Relay) -> None:
        """Its end is closed here."""
        if relay in self._relays:
            self._relays.discard(relay)
            self.poke()
            self._wait_for_more()

    def kill(self) -> None:
        """Its connections end, for us at once, and for the agents when it is gone."""
        self.end()
        self._process.kill()
        for relay in list(self._relays):
            if relay in self._relays and relay.on_cut is not None:
                relay.on_cut()

    def end(self) -> None:
        """Have it end, by itself, when it has done what it was told."""
        self.dying = True
        self._stop_waiting()
        if self._asked is not None:
            self._asked.cancel()
            self._asked = None
        if self._control.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self.words.end()
            self._control.close()

    def _hand(self, word: str, *sockets: socket.socket) -> None:
        """Give it these, whose copies here are then closed. Raises OSError: they are still the caller's."""
        self.words.hand(word, *(sock.fileno() for sock in sockets))
        for sock in sockets:
            sock.detach()

    def _hear(self) -> None:
        """It answers, or has ended."""
        try:
            said = self._control.recv(16)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            self._failed(self)
        elif self._asked is not None:
            self._asked.cancel()
            self._asked = None
            if self._again:
                self.poke()
            else:  # nothing was handed over since it was asked
                self._streams = said == b"b"

    def _silent(self) -> None:
        """It has not answered, or we have not read for long: then it has as much time again."""
        self._hear()
        if self._asked is not None:
            self._asked = asyncio.get_running_loop().call_later(PORTER_ANSWERS_SECONDS / 2, self._failed, self)

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
        self._ended(self)


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


def end_all(porters: Collection[Porter]) -> None:
    """The daemon ends: wait for them a moment. Then they are killed, but for those that wait for a file system."""
    for porter in porters:
        porter.end()
    if not _have_ended(porters):
        for porter in porters:
            porter.kill()
        _have_ended(porters)
    for porter in porters:
        porter.reap()


def _have_ended(porters: Collection[Porter]) -> bool:
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
