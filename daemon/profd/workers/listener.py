"""The end of a seccomp filter at which its questions are answered (seccomp_unotify(2)), on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import select
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_RECEIVE: Final = 0xC0502100  # SECCOMP_IOCTL_NOTIF_RECV
_SEND: Final = 0xC0182101  # SECCOMP_IOCTL_NOTIF_SEND
_ASKED: Final = struct.Struct("=QIIiI56x")  # id, pid, flags, number, architecture; instruction and arguments
_ANSWER: Final = struct.Struct("=QqiI")  # id, value, error, flags
_CONTINUE: Final = 1  # SECCOMP_USER_NOTIF_FLAG_CONTINUE


def kernel_is(major: int, minor: int) -> bool:
    """Whether the kernel is this one or a later one: 5.5 has answers that let a call go on, 5.6 has pidfd_getfd(2)."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return found is not None and (int(found[1]), int(found[2])) >= (major, minor)


@dataclass(frozen=True, slots=True)
class HeldCall:
    """One call that waits for its answer."""

    pid: int
    number: int
    architecture: int


class WorkerListener:
    """Answers until `close()`, or until no process is left to ask. The kernel ends later calls in ENOSYS."""

    def __init__(self, descriptor: int, answer: Callable[[HeldCall], int]) -> None:
        """Takes the descriptor over. `answer`: an errno, or 0 to let the call go on; it may `close`."""
        self._descriptor = descriptor
        self._decide = answer
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._answer)

    def close(self) -> None:
        """Leave further questions to the kernel. Safe to repeat."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _answer(self) -> None:
        events = [event for _, event in self._poll.poll(0)]
        if not events:
            return
        # Without POLLIN they have ended, and to receive would wait for ever.
        if not events[0] & select.POLLIN:
            self.close()
            return
        asked = bytearray(_ASKED.size)
        with contextlib.suppress(OSError):  # it has been killed meanwhile
            fcntl.ioctl(self._descriptor, _RECEIVE, asked)
            name, pid, _, number, architecture = _ASKED.unpack(asked)
            error = self._decide(HeldCall(pid, number, architecture))
            if self._descriptor >= 0:
                answer = _ANSWER.pack(name, 0, -error, 0 if error else _CONTINUE)
                fcntl.ioctl(self._descriptor, _SEND, answer)
