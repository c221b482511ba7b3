"""The daemon's end of a worker's system calls that are on no list: ENOSYS, and a line in the log.

The kernel answers in the same way when nobody listens, so a worker that asks without end is left to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import select
import struct
from typing import Final

from profd.limits import WORKER_CALLS_ASKED_MAX, WORKER_CALLS_LOGGED_MAX

_RECEIVE: Final = 0xC0502100  # SECCOMP_IOCTL_NOTIF_RECV
_SEND: Final = 0xC0182101  # SECCOMP_IOCTL_NOTIF_SEND
_ASKED: Final = struct.Struct("=QIIiI56x")  # id, pid, flags, number, architecture; instruction and arguments
_ANSWER: Final = struct.Struct("=QqiI")  # id, value, error, flags

_logged: set[int] = set()

log = logging.getLogger("profd.workers")


class UnknownCalls:
    """Answers for one worker, from the event loop, until `close()` or the worker's end."""

    def __init__(self, listener: int) -> None:
        """Takes the descriptor over."""
        self._listener = listener
        self._asked = 0
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(listener, self._answer)

    def close(self) -> None:
        """Leave what may still be asked to the kernel. Safe to repeat."""
        if self._listener >= 0:
            self._loop.remove_reader(self._listener)
            os.close(self._listener)
            self._listener = -1

    def _answer(self) -> None:
        events = [event for _, event in self._poll.poll(0)]
        if not events:
            return
        # Without POLLIN the worker has ended, and to receive would wait for ever.
        if not events[0] & select.POLLIN or self._asked >= WORKER_CALLS_ASKED_MAX:
            self.close()
            return
        self._asked += 1
        asked = bytearray(_ASKED.size)
        with contextlib.suppress(OSError):  # it has been killed meanwhile
            fcntl.ioctl(self._listener, _RECEIVE, asked)
            name, pid, _, number, architecture = _ASKED.unpack(asked)
            _tell(pid, number, architecture)
            fcntl.ioctl(self._listener, _SEND, _ANSWER.pack(name, 0, -errno.ENOSYS, 0))


def _tell(pid: int, number: int, architecture: int) -> None:
    if number in _logged or len(_logged) >= WORKER_CALLS_LOGGED_MAX:
        return
    _logged.add(number)
    log.warning(
        "a worker asked for a system call it may not make",
        extra={"call": number, "architecture": f"{architecture:#x}", "worker": pid, "answer": "ENOSYS"},
    )
