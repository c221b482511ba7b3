"""How many threads a sampler may start: its target's user may trace one that has no capability, and it counts as ours.

Its filter asks for each (seccomp_unotify(2)); a warden counts where there is one, else the daemon, here. That takes the
right to take the listener over, which the daemon has where it samples others; `--user` does not count.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
import socket
from typing import Final

from profd.limits import SAMPLER_THREADS_MAX
from profd.sources.pyspy.permission import Rights
from profd.workers.listener import HeldCall, WorkerListener, kernel_is

log = logging.getLogger("profd.sources.pyspy")

_SYS_PIDFD_GETFD: Final = 438
_libc: Final = ctypes.CDLL(None, use_errno=True)


def can_be_counted() -> bool:
    """By this daemon, on this kernel."""
    return Rights.mine().capable and kernel_is(5, 6)


class Threads:
    """The count of one sampler, on the event loop, until `close()`."""

    def __init__(self, conversation: socket.socket) -> None:
        """Takes the socket over, on which the listener comes once the sampler has its filter."""
        self._started = 0
        self._listener: WorkerListener | None = None
        self._conversation = conversation
        conversation.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(conversation, self._introduced)

    def close(self) -> None:
        """None is started any more. Safe to repeat."""
        self._hang_up()
        if self._listener is not None:
            self._listener.close()

    def _introduced(self) -> None:
        try:
            said = self._conversation.recv(64).split()
            if said:  # else the kernel gives no listener for it, and every thread goes on
                self._listener = WorkerListener(_taken(*map(int, said)), self._answer)
                self._conversation.send(b"+")
        except BlockingIOError:
            return
        except OSError as error:  # it ends, since nobody has answered
            log.warning("a sampler cannot be watched", extra={"why": str(error)})
        self._hang_up()

    def _hang_up(self) -> None:
        if self._conversation.fileno() >= 0:
            self._loop.remove_reader(self._conversation)
            self._conversation.close()

    def _answer(self, _question: HeldCall) -> int:
        self._started += 1
        if self._started <= SAMPLER_THREADS_MAX:
            return 0
        self.close()  # who goes on asking asks the kernel, not us
        return errno.EAGAIN


def _taken(process: int, descriptor: int) -> int:
    """A descriptor of a child of ours that has not been reaped. Raises OSError."""
    holder = os.pidfd_open(process)
    try:
        taken = int(_libc.syscall(*map(ctypes.c_long, (_SYS_PIDFD_GETFD, holder, descriptor, 0))))
    finally:
        os.close(holder)
    if taken < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return taken
