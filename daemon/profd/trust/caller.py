"""The user who makes a call: proven by the kernel on the control socket, carried by a token."""

from __future__ import annotations

import os
from contextvars import ContextVar
from dataclasses import dataclass

from profd.kernel import nobody


@dataclass(frozen=True, slots=True)
class Caller:
    """A process and its owner, as they were when it asked for its token.

    `pid` is in the daemon's pid namespace, 0 when the caller cannot be seen
    from there; (pid, start_ticks) names one process for ever.
    """

    uid: int
    gid: int
    user: str
    admin: bool  # the host's root, or a member of the admin group on the host: all processes, all traces
    pid: int
    groups: tuple[int, ...] = ()
    start_ticks: int = 0
    host_pids: bool = False  # it names processes by the pids that we see
    container: int = 0  # of `trust.namespaces.container`, whose processes alone it may have; 0: the host

    def may_connect(self, group: int | None) -> bool:
        """Whether this group is the caller's (None: everybody's). It is asked of users, as by the sockets' files."""
        free = group is None or self.uid in (0, os.geteuid(), nobody.STREAMER)
        return free or group == self.gid or group in self.groups


_current: ContextVar[Caller] = ContextVar("profd_caller")


def current() -> Caller:
    """The caller of the RPC that runs now. LookupError outside one: a fault of the daemon."""
    return _current.get()


def enter(caller: Caller) -> None:
    """Make this the caller of the RPC that runs in this context."""
    _current.set(caller)
