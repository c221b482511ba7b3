"""One process of errands, from the daemon's side of its conversation."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from typing import Any, Final

from profd.kernel.pidfd import has_ended
from profd.targets import procfs
from profd.targets.errands import words

_RUNNING: Final = 10  # times as long may it take while it runs: a busy host, not a file system that is dead


class NoAnswer(Exception):
    """A file system did not answer in time, or no process could be had; str() is a sentence."""


class Unanswered(NoAnswer):
    """The process did not answer in time."""


class Child:
    """A process and the conversation with it. Only the process has files of targets open; its end closes them."""

    def __init__(self, conversation: socket.socket, pid: int, pidfd: int, uid: int) -> None:
        self.uid = uid  # on whose account
        self.pid = pid
        self.lock = asyncio.Lock()  # one question at a time, of those that are asked on an event loop
        self.directories: set[int] = set()
        self.to_close: list[int] = []  # told with the next question: an answer to another may be on its way
        self.given_up = False
        self.over_since = 0.0  # monotonic seconds: since when it has been told to end
        self._conversation = conversation
        self._pidfd = pidfd

    @property
    def over(self) -> bool:
        """Whether the process answers no more."""
        return self.over_since > 0

    def ask(self, question: list[Any], seconds: float, fd: int = -1) -> Any:
        """Ask and wait for the answer, so long at most; blocks.

        Raises OSError, and NoAnswer, after which the process is of no use.

        A descriptor that goes with the question stays the caller's.
        """
        try:
            self._conversation.settimeout(seconds)
            self._send(question, fd)
            return _understood(self._waited())
        except (TimeoutError, BrokenPipeError, ConnectionResetError, ValueError) as error:
            self.end(kill=True)
            raise _silence(error) from error

    def _waited(self) -> bytes:
        for _ in range(_RUNNING):
            try:
                return self._conversation.recv(words.MESSAGE_BYTES_MAX)
            except TimeoutError:
                stat = procfs.stat_of(self.pid)
                if stat is None or stat.state != "R":
                    return self._said_meanwhile()
        raise TimeoutError

    def _said_meanwhile(self) -> bytes:
        """The answer of a process that does not run any more because it has answered; TimeoutError where it has not.

        On a busy host the caller's turn comes late, and the answer may come between the timeout and the look at the
        process.
        """
        self._conversation.setblocking(False)
        try:
            return self._conversation.recv(words.MESSAGE_BYTES_MAX)
        except BlockingIOError:
            raise TimeoutError from None

    async def say(self, question: list[Any], fd: int = -1) -> None:
        """Send a question, and with it a descriptor, which stays the caller's. NoAnswer if the process is gone."""
        if self.over:
            raise NoAnswer("the process that looked at the files of its user was given up; ask again")
        try:
            self._conversation.setblocking(False)
            self._send(question, fd)
        except (OSError, ValueError) as error:
            self.end(kill=True)
            raise _silence(error) from error

    def _send(self, question: list[Any], fd: int) -> None:
        if fd < 0:
            self._conversation.send(words.packed(question))
        else:
            socket.send_fds(self._conversation, [words.packed(question)], [fd])

    async def hear(self, seconds: float) -> list[Any]:
        """The next answer. Raises NoAnswer, after which the process is of no use."""
        try:
            async with asyncio.timeout(seconds):
                raw = await asyncio.get_running_loop().sock_recv(self._conversation, words.MESSAGE_BYTES_MAX)
            return words.unpacked(raw)
        except (OSError, ValueError) as error:  # TimeoutError is one
            self.end(kill=True)
            raise _silence(error) from error
        except asyncio.CancelledError:
            self._kill()  # its answer would be taken for that of the next question; that it is silent nobody knows
            self.end()
            raise

    def end(self, *, kill: bool = False) -> None:
        """Let the process end, or give it up: it is killed. Waits for nothing. Safe to repeat."""
        if kill:
            self.given_up = True
            self._kill()
        if not self.over:
            self.over_since = time.monotonic()
            self._conversation.close()

    def _kill(self) -> None:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def gone(self) -> bool:
        """Whether the process has ended; closes its pidfd then. For one that is `over`."""
        if self._pidfd < 0:
            return True
        if not has_ended(self._pidfd):
            return False
        os.close(self._pidfd)
        self._pidfd = -1
        return True

    def forget(self) -> None:
        """Close its pidfd, ended or not, because the daemon ends."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


def _understood(raw: bytes) -> Any:
    answer = words.unpacked(raw)
    if answer[0] == words.FAILED:
        raise OSError(int(answer[1]), str(answer[2]))
    if answer[0] != words.ANSWER:
        raise ValueError(answer[0])
    return answer[1]


def _silence(error: Exception) -> NoAnswer:
    if isinstance(error, TimeoutError):
        return Unanswered("the file system that it lies on does not answer")
    return NoAnswer(f"the process that looked at it has ended ({error})")
