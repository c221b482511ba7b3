"""Errands: work on files of targets, in processes that the daemon gives up when they wait too long.

A file below a target's root may lie on a file system that its user serves (FUSE) or that is dead (NFS). A process that
asks such a file system waits in state D, and once a FUSE server has read the request not even SIGKILL ends the wait.
No thread of the daemon therefore opens, looks at or closes such a file: a process does, which shares neither memory nor
descriptors with the daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from profd import limits
from profd.fairness.rare_line import RareLine
from profd.kernel.environment import bare_environment
from profd.kernel.rights import received_descriptors
from profd.limits import (
    ERRAND_START_SECONDS,
    ERRANDS_IDLE_MAX,
    ERRANDS_MAX,
    ERRANDS_PER_UID_MAX,
    ERRANDS_STUCK_PER_UID_MAX,
    ERRANDS_STUCK_SECONDS,
    PROC_WAIT_LOOP_SECONDS,
    PROC_WAIT_SECONDS,
)
from profd.targets import delegation
from profd.targets.errands import words
from profd.targets.errands.child import Child, NoAnswer, Unanswered
from profd.targets.guarded import Patience

NAMES: Final = -2  # on whose account names of sockets are looked at: nobody's but the daemon's
NUMBERS: Final = itertools.count(1)  # of what a process holds: a directory, or the memory that it is asked about

log = logging.getLogger(__name__)
_unanswered = RareLine(log, "files of a user's processes do not answer, and are no longer waited for")

Value = TypeVar("Value")


class Errands:
    """All errands of one daemon. The first errand, or `open`, starts the server; safe to use from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._idle: OrderedDict[int, Child] = OrderedDict()  # by uid, with nothing open; the latest last
        self._holding: dict[int, list[Child]] = {}  # by uid: with directories open
        self._over: list[Child] = []  # that were told to end, and may not be able to
        self._asking: dict[int, int] = {}  # by uid: single questions that are under way
        self._patience = Patience()
        self._starter = ThreadPoolExecutor(1, "profd-errands")

    def open(self) -> None:
        """Start the server that makes the processes: the first errand need not wait, and errors come early."""
        with self._lock, contextlib.suppress(NoAnswer):
            self._running()

    def close(self) -> None:
        """End all processes, and wait for none: one that waits for a file system ends when that answers."""
        with self._lock:
            children = [*self._idle.values(), *(each for some in self._holding.values() for each in some), *self._over]
            for child in children:
                child.end(kill=True)
                child.forget()
            self._idle.clear()
            self._holding.clear()
            self._over.clear()
            self._stop_server()
            self._starter.shutdown(wait=False)
            self._starter = ThreadPoolExecutor(1, "profd-errands")

    def statistics(self) -> dict[str, int]:
        """`processes`: all; `stuck`: those of them that should have ended and cannot."""
        with self._lock:
            self._sweep()
            return {"processes": len(self._idle) + self._count(), "stuck": sum(map(_stuck, self._over))}

    @property
    def pids(self) -> list[int]:
        """Of the server and of what it has made. Takes no lock: the event loop asks, and a start may hold the lock."""
        holding = itertools.chain.from_iterable(self._holding.copy().values())
        made = [child.pid for child in (*self._idle.copy().values(), *holding, *self._over)]
        server = self._server
        return made if server is None else [server.pid, *made]

    def once(self, folder: Path, *question: Any) -> Any:
        """One question about files of a process, by its folder in /proc. Blocks for a bounded moment.

        Waits for processes of one user are also bounded together (targets/guarded.Patience). Raises NoAnswer, and the
        file system's OSError.
        """
        pid = int(folder.name) if folder.name.isdecimal() else 0
        try:
            uid = folder.stat().st_uid  # which never waits
        except OSError:
            uid = -1
        most = PROC_WAIT_LOOP_SECONDS if _on_a_loop() else PROC_WAIT_SECONDS
        seconds = self._patience.allowed(pid, uid, most)
        if not seconds:
            raise NoAnswer("files of its user did not answer some seconds ago")
        child = self._taken(uid)
        began = time.monotonic()
        try:
            return self._put(child, list(question), seconds)
        except NoAnswer:
            self._patience.waited(pid, uid, time.monotonic() - began, most)
            raise

    def ask(self, uid: int, seconds: float, *question: Any, fd: int = -1) -> Any:
        """One question to a process that stays for the next one; blocks. Otherwise as `asked`."""
        return self._put(self._taken(uid), list(question), seconds, fd)

    def _put(self, child: Child, question: list[Any], seconds: float, fd: int = -1) -> Any:
        try:
            return child.ask(question, seconds, fd)
        finally:
            self._given_back(child)

    async def holder(self, uid: int, number: int) -> Child:
        """A process for one more directory of this user's files, with this number. NoAnswer where there can be none."""
        future = self._starter.submit(self._holder, uid, number)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.add_done_callback(lambda done: self._unwanted(done, number))
            raise

    async def aside(self, what: Callable[..., Value], *arguments: Any) -> Value:
        """Call a function that may wait for the daemon's own disk, in a thread that waits for no file of others."""
        return await asyncio.get_running_loop().run_in_executor(self._starter, what, *arguments)

    async def asked(self, uid: int, *question: Any, fd: int = -1, seconds: float | None = None) -> Any:
        """One question to a process of its own. Raises NoAnswer, and the kernel's OSError.

        `fd` goes with the question, and stays the caller's. `seconds`: ERRAND_SECONDS where not given.
        """
        number = next(NUMBERS)
        child = await self.holder(uid, number)
        try:
            async with child.lock:
                await child.say(list(question), fd)
                said = await child.hear(limits.ERRAND_SECONDS if seconds is None else seconds)
        finally:
            self.let_go(child, number)
        if said[0] == words.FAILED:
            raise OSError(int(said[1]), str(said[2]))
        if said[0] != words.ANSWER:
            child.end(kill=True)
            raise NoAnswer(f"it said {said[0]!r}")
        return said[1]

    def let_go(self, child: Child, number: int) -> None:
        """Give a directory back, or a process up that does not answer. Waits for nothing; safe to repeat."""
        with self._lock:
            if number in child.directories:
                child.directories.discard(number)
                child.to_close.append(number)
            if child.over or not child.directories:
                self._end(child)

    def _unwanted(self, done: Future[Child], number: int) -> None:
        if not done.cancelled() and done.exception() is None:
            self.let_go(done.result(), number)

    def _holder(self, uid: int, number: int) -> Child:
        with self._lock:
            self._sweep()
            theirs = [child for child in self._holding.get(uid, ()) if not child.over]
            if theirs and (len(theirs) >= ERRANDS_PER_UID_MAX or self._count() >= ERRANDS_MAX):
                child = min(theirs, key=lambda child: len(child.directories))
            else:
                child = self._idle_one(uid) or self._made(uid)
                self._holding.setdefault(uid, []).append(child)
            child.directories.add(number)
            return child

    def _taken(self, uid: int) -> Child:
        with self._lock:
            self._sweep()
            child = self._idle_one(uid) or self._made(uid)
            self._asking[uid] = self._asking.get(uid, 0) + 1
            return child

    def _idle_one(self, uid: int) -> Child | None:
        child = self._idle.pop(uid, None)
        if child is None or not child.gone():
            return child
        child.end()
        return None

    def _given_back(self, child: Child) -> None:
        with self._lock:
            self._asking[child.uid] -= 1
            if not self._asking[child.uid]:
                del self._asking[child.uid]
            if child.over or child.uid in self._idle:
                self._end(child)
                return
            self._idle[child.uid] = child
            while len(self._idle) > ERRANDS_IDLE_MAX:
                self._end(self._idle.popitem(last=False)[1])

    def _end(self, child: Child) -> None:
        child.end()
        with contextlib.suppress(ValueError):
            self._holding.get(child.uid, []).remove(child)
        if not self._holding.get(child.uid, True):
            del self._holding[child.uid]
        if child not in self._over:
            self._over.append(child)
            if child.given_up and child.uid != NAMES:  # who asks for these tells it
                _unanswered.tell(child.uid)

    def _sweep(self) -> None:
        """Forget processes that have ended."""
        for child in [each for some in self._holding.values() for each in some if each.over]:
            self._end(child)
        self._over = [child for child in self._over if not child.gone()]

    def _count(self) -> int:
        """The number of processes at work; few processes wait for a question."""
        holding = sum(map(len, self._holding.values()))
        return holding + sum(self._asking.values()) + sum(map(_stuck, self._over))

    def _made(self, uid: int) -> Child:
        """A new process. NoAnswer where too many of this user's, or too many in all, wait for ever."""
        stuck = sum(child.uid == uid and _stuck(child) for child in self._over)
        if uid == NAMES and any(child.uid == uid and child.given_up for child in self._over):
            raise Unanswered("one that was given up waits there")
        if stuck >= ERRANDS_STUCK_PER_UID_MAX:
            raise NoAnswer(
                f"{stuck} looks at files of uid {uid} wait for a file system that does not answer, and nothing more of "
                "theirs is looked at until it does, or is unmounted"
            )
        some = stuck + len(self._holding.get(uid, ())) + self._asking.get(uid, 0)
        # A few more where somebody has none: who came first does not keep them from it.
        if self._count() >= (ERRANDS_MAX if some else 2 * ERRANDS_MAX):
            raise NoAnswer("too many looks at files of processes are under way or wait for file systems that are dead")
        ours, theirs = words.pair()
        try:
            pid, pidfd = self._forked(theirs, words.FOR_NAMES if uid == NAMES else words.FOR_FILES)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return Child(ours, pid, pidfd, uid)

    def _forked(self, theirs: socket.socket, what_for: bytes) -> tuple[int, int]:
        """(pid, pidfd) of a process with this end of a conversation."""
        for again in (True, False):
            link = self._running()
            try:
                socket.send_fds(link, [what_for], [theirs.fileno()])
                said, ancillary, _, _ = link.recvmsg(16, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
                fds = received_descriptors(ancillary)
                if fds:
                    return int(said), fds[0]
                if said:
                    raise NoAnswer(f"no process for it can be made: {os.strerror(-int(said))}")
            except OSError as error:
                log.warning("what makes processes for errands does not answer", extra={"why": str(error)})
            self._stop_server()
            if not again:
                break
        raise NoAnswer("no process for it can be made: what makes them ends at once; the daemon's log says why")

    def _running(self) -> socket.socket:
        if self._link is not None:
            return self._link
        group = delegation.current().group(delegation.ChildKind.ERRANDS)
        ours, theirs = words.pair()
        ours.settimeout(ERRAND_START_SECONDS)
        try:
            with theirs:
                self._server = subprocess.Popen(
                    [sys.executable, "-P", "-m", "profd.targets.errands.server", str(theirs.fileno()), group],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    cwd="/",
                    env=bare_environment(),
                )
        except OSError as error:
            ours.close()
            raise NoAnswer(f"no process for it can be made: {error.strerror} ({sys.executable})") from error
        self._link = ours
        return ours

    def _stop_server(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._server is not None:
            self._server.kill()  # it never waits for a file of a target
            self._server.wait()
            self._server = None


def _stuck(child: Child) -> bool:
    """Whether the daemon ended it a while ago, and it still lives."""
    return time.monotonic() - child.over_since > ERRANDS_STUCK_SECONDS


def _on_a_loop() -> bool:
    return asyncio._get_running_loop() is not None


errands: Final = Errands()
