"""The daemon's end of a worker's system calls that are on no list: ENOSYS, and a line in the log.

Without a listener the kernel gives the same answer, so the daemon leaves a worker that asks without end to the kernel.
"""

from __future__ import annotations

import errno
import logging

from profd.limits import WORKER_CALLS_ASKED_MAX, WORKER_CALLS_LOGGED_MAX
from profd.workers.listener import HeldCall, WorkerListener

_logged: set[int] = set()

log = logging.getLogger("profd.workers")


class UnknownCalls:
    """Answers for one worker, from the event loop, until `close()` or the worker's end."""

    def __init__(self, listener: int) -> None:
        """Takes the descriptor over."""
        self._asked = 0
        self._listener = WorkerListener(listener, self._answer)

    def close(self) -> None:
        """Leave further questions to the kernel. Safe to repeat."""
        self._listener.close()

    def _answer(self, question: HeldCall) -> int:
        self._asked += 1
        if self._asked > WORKER_CALLS_ASKED_MAX:
            self.close()
        else:
            _tell(question)
        return errno.ENOSYS


def _tell(question: HeldCall) -> None:
    if question.number in _logged or len(_logged) >= WORKER_CALLS_LOGGED_MAX:
        return
    _logged.add(question.number)
    log.warning(
        "a worker asked for a system call it may not make",
        extra={
            "call": question.number,
            "architecture": f"{question.architecture:#x}",
            "worker": question.pid,
            "answer": "ENOSYS",
        },
    )
