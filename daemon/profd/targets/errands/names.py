"""Names of sockets in a directory where every user makes names: the daemon's side.

All functions but `send` raise NoAnswer where somebody keeps the directory's lock, and the kernel's OSError.
"""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import msgspec

from profd.limits import NAMES_SECONDS, NAMES_SEND_SECONDS
from profd.targets.errands import words
from profd.targets.errands.child import NoAnswer
from profd.targets.errands.office import NAMES, Errands, errands

Inode = tuple[int, int]


def inode_of(descriptor: int) -> Inode:
    """The inode of an open file."""
    info = os.fstat(descriptor)
    return info.st_dev, info.st_ino


class Taken(Exception):
    """The name is taken: `held` by a live socket, otherwise by a file that is no socket."""

    def __init__(self, held: bool) -> None:
        super().__init__()
        self.held = held


async def bind(sock: socket.socket, path: Path, folder_mode: int = 0, office: Errands = errands) -> Inode:
    """Bind a datagram socket for everybody; raises Taken, too.

    `folder_mode`: the mode of a directory where everybody makes names, in which we are root; 0: one of our own.

    A process that was given up may bind the socket later, so the socket is of no use then.
    """
    where = (os.fsencode(path.parent), os.fsencode(path.name))
    said = await office.asked(NAMES, "bind", *where, folder_mode, fd=sock.fileno(), seconds=NAMES_SECONDS)
    if said in (words.HELD, words.NO_SOCKET):
        raise Taken(held=said == words.HELD)
    try:
        found: Inode = msgspec.convert(said, Inode)
    except msgspec.ValidationError as error:
        raise NoAnswer(str(error)) from error
    return found


def send(sock: socket.socket, path: Path, data: bytes, uid: int, office: Errands = errands) -> None:
    """Send a datagram to a socket file that is this user's; blocks for a moment.

    For names that the kernel knows and that cannot be found otherwise. Raises the kernel's OSError, and TimeoutError
    where it gives no answer.
    """
    try:
        office.ask(NAMES, NAMES_SEND_SECONDS, "send", os.fsencode(path), data, uid, fd=sock.fileno())
    except NoAnswer as error:
        raise TimeoutError(errno.ETIMEDOUT, str(error), str(path)) from error


async def sweep(directory: Path, prefix: str, age_seconds: float, entries: int, office: Errands = errands) -> int:
    """Remove sockets that no process has; returns their number."""
    asked = (os.fsencode(directory), prefix.encode(), age_seconds, entries)
    return int(await office.asked(NAMES, "sweep", *asked, seconds=NAMES_SECONDS))
