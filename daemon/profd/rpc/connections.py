"""Connections to the gRPC socket, counted by user.

gRPC accepts them itself and hides who is at the other end, and nothing may stand between it and its clients that
costs them time. So they are looked for among the daemon's own descriptors, once a second, and those of a user who has
too many are shut down; gRPC sees their end and lets go of them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
import stat
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from profd.limits import CONNECTIONS_PER_UID_MAX
from profd.trust.identify import peer_uid

_DESCRIPTORS_MAX: Final = 1 << 17

log = logging.getLogger("profd.rpc")


async def look(directory: Path) -> int:
    """Shut down what is beyond; how many. Sockets that listen in this directory are ours."""
    descriptors: Collection[int]
    try:
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:  # we have as many as we may, and a listing takes one
        descriptors = range(min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], _DESCRIPTORS_MAX))
    if len(descriptors) <= CONNECTIONS_PER_UID_MAX:
        return 0
    return await asyncio.to_thread(_cut_off, directory, descriptors)


def _cut_off(directory: Path, descriptors: Collection[int]) -> int:
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for descriptor, inode, uid in _connections(directory, descriptors):
        if uid not in (0, os.geteuid()):
            found[uid].append((inode, descriptor))
    cut = 0
    for uid, connections in found.items():
        # Inodes count up: who came last goes.
        beyond = sorted(connections)[CONNECTIONS_PER_UID_MAX:]
        for inode, descriptor in beyond:
            _shut(descriptor, inode)
        if beyond:
            log.warning("connections of one user cut off", extra={"uid": uid, "count": len(beyond)})
        cut += len(beyond)
    return cut


def _connections(directory: Path, descriptors: Collection[int]) -> Iterator[tuple[int, int, int]]:
    """Descriptor, inode and uid of each."""
    for descriptor in descriptors:
        with suppress(OSError), _borrowed(descriptor) as sock:
            if sock.family is socket.AF_UNIX and sock.type is socket.SOCK_STREAM and _is_ours(sock, directory):
                yield descriptor, os.fstat(descriptor).st_ino, peer_uid(sock)


def _is_ours(sock: socket.socket, directory: Path) -> bool:
    address = sock.getsockname()
    listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    return isinstance(address, str) and not listens and Path(address).parent == directory


def _shut(descriptor: int, inode: int) -> None:
    with suppress(OSError), _borrowed(descriptor) as sock:
        if os.fstat(descriptor).st_ino == inode:  # not somebody else's by now
            sock.shutdown(socket.SHUT_RDWR)


@contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A socket that stays gRPC's. Raises OSError where it is none."""
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        raise OSError(errno.ENOTSOCK, os.strerror(errno.ENOTSOCK))
    sock = socket.socket(fileno=descriptor)
    try:
        yield sock
    finally:
        sock.detach()
