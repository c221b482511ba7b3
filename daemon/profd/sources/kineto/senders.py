"""The filter on senders of Kineto's datagrams, which the kernel runs before the socket's queue (decision 0012).

A thread begins with the capabilities of the one that starts it: CAP_BPF, which loads the filter, is given up before
there is another thread.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from dataclasses import dataclass
from typing import Final

from profd import _host, limits
from profd.kernel import capabilities

log = logging.getLogger(__name__)

# A second of the filter's overlaps two of the drain's: what this drops, the drain would have dropped.
_TIMES: Final = 2
_SO_DETACH_FILTER: Final = 27  # not named by Python's socket module
_OLD: Final = "socket filters of this kernel are not told who sends (those of Linux 6.18 are)"


@dataclass(frozen=True, slots=True)
class Senders:
    """The filter, or why there is none."""

    filter: _host.SenderFilter | None = None
    by_user: bool = False  # else processes alone are told apart
    why_not: str = ""  # empty: it was not wanted

    def attach(self, sock: socket.socket) -> None:
        """From now on, if there is a filter: in place of an earlier daemon's. One that cannot be attached is said."""
        if self.filter is None:
            with contextlib.suppress(OSError):  # it has none
                sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
            return
        try:
            self.filter.attach(sock.fileno())
        except OSError as error:
            log.warning("kineto: senders are not filtered at %s: %s", sock.getsockname(), error.strerror)

    def dropped(self) -> int:
        """Datagrams so far."""
        return self.filter.dropped() if self.filter is not None else 0


def load(wanted: bool, *, user: bool) -> Senders:
    """What this daemon may have; `user`: it serves one user and has no capabilities.

    Ends the use of CAP_BPF: call it before anything starts a thread.
    """
    try:
        senders = _loaded() if wanted else Senders()
    finally:
        capabilities.give_up(capabilities.BPF)
    if senders.why_not:
        log.log(
            logging.INFO if user else logging.WARNING,
            "kineto: senders are not filtered by the kernel: %s",
            senders.why_not,
        )
    return senders


def _loaded() -> Senders:
    try:
        return Senders(_filter(by_user=True), by_user=True)
    except OSError as error:
        if error.errno != errno.EINVAL:
            return Senders(why_not=_why(error))
    try:
        return Senders(_filter(by_user=False))  # by reading: Linux 6.10 to 6.15
    except OSError as error:
        return Senders(why_not=_why(error))


def _filter(*, by_user: bool) -> _host.SenderFilter:
    return _host.SenderFilter(
        of_process=_TIMES * limits.KINETO_DATAGRAMS_PER_SECOND_MAX,
        of_user=_TIMES * limits.KINETO_DATAGRAMS_PER_UID_PER_SECOND_MAX,
        remembered=limits.KINETO_SENDERS_TOLD_APART,
        by_user=by_user,
    )


def _why(error: OSError) -> str:
    if error.errno == errno.EPERM:
        return "the daemon has no CAP_BPF, or the host allows no bpf(2)"
    if error.errno == errno.EINVAL:
        return _OLD
    if error.errno == errno.ENOSYS:
        return "there is no bpf(2), in this kernel or by the service's SystemCallFilter="
    return f"{error.filename}: {error.strerror}"
