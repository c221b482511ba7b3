"""From a connected Unix socket to a Caller: what the kernel says of the peer.

grpcio hides SO_PEERCRED, hence a socket of our own. Credentials are those at
`connect()`: a process that changed its identity later, or passed the socket
on, is judged by what it was then.
"""

from __future__ import annotations

import ctypes
import os
import socket
from typing import Final

from profd.kernel import names, nobody
from profd.kernel.peer import Peer, pidfd_of
from profd.kernel.pidfd import has_ended
from profd.targets import procfs
from profd.targets.starts import starts
from profd.trust.caller import Caller
from profd.trust.namespaces import UNREADABLE, container, shares_pids

_SO_PEERGROUPS: Final = 59
_GROUPS_MAX: Final = 65_536  # NGROUPS_MAX of Linux

_libc = ctypes.CDLL(None)


class SilentProcess(Exception):
    """The process does not answer; str() says so to whoever asks for it."""


def caller_of(sock: socket.socket, peer: Peer, admin_group: str) -> Caller:
    """The process at the other end, which `peer` names. Raises Silent where it does not answer."""
    pid, uid, gid = peer
    started = start_ticks(pid)
    if not started and procfs.unanswering(pid):
        raise SilentProcess(procfs.silence(pid))
    groups, within = _groups(sock), _container(sock, peer)
    # A streamer is in the group that may connect, which may be the admins'. In a container without a user namespace
    # root has the host's uid, and the groups that it wants, and need not be allowed anything of the host.
    admin = uid == 0 or (uid != nobody.STREAMER and _is_member(uid, gid, groups, admin_group))
    return Caller(uid, gid, names.user_name(uid), admin and not within, pid, groups, started, shares_pids(pid), within)


def _container(sock: socket.socket, peer: Peer) -> int:
    """Of whoever connected; UNREADABLE, too, where another process may have the pid by now."""
    try:
        pidfd = pidfd_of(sock, peer)
        try:
            found = container(peer.pid)
            return UNREADABLE if has_ended(pidfd) else found
        finally:
            os.close(pidfd)
    except OSError:
        return UNREADABLE


def start_ticks(pid: int) -> int:
    """Field 22 of /proc/PID/stat; 0 when there is no such process to be seen, or it does not answer.

    May wait a moment where it was not asked before: for a thread.
    """
    if pid <= 0:
        return 0
    return starts.of(pid)


def _groups(sock: socket.socket) -> tuple[int, ...]:
    """Supplementary groups at connect(), from the kernel rather than from the group database."""
    # socket.getsockopt() takes no more than 1024 bytes, and a caller may be in 65536 groups.
    groups = (ctypes.c_uint32 * _GROUPS_MAX)()
    size = ctypes.c_uint32(ctypes.sizeof(groups))
    if _libc.getsockopt(sock.fileno(), socket.SOL_SOCKET, _SO_PEERGROUPS, groups, ctypes.byref(size)) != 0:
        return ()  # before Linux 4.13
    return tuple(groups[: size.value // ctypes.sizeof(ctypes.c_uint32)])


def _is_member(uid: int, gid: int, groups: tuple[int, ...], name: str) -> bool:
    if not name:
        return False
    found = names.gid_of(name)
    # Not by the member list of the database: a login from before the membership has no right yet.
    return found is not None and (found == gid or found in groups)
