"""Names of sockets in a directory where every user makes names: the process of the errands.

To make, remove, list or look for a name takes the directory's lock, and waits in state D for its holder. Any user can
hold this lock for ever: they remove a file of theirs whose own lock a write from memory that never comes keeps.
A user may have made a name that is meant for ours, too. Clients that find it ask them, and end where they are answered
wrongly (docs/facts/kineto.md): ours is made before theirs, stays when the daemon ends, and takes the place of theirs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
import stat
import time
from pathlib import Path
from typing import Any, Final

from profd.disk.files import rename
from profd.targets.errands import words

_MODE: Final = 0o666  # clients of any uid send to it
_OTHERS_MAKE_NAMES: Final = stat.S_IWGRP | stat.S_IWOTH


def bind(fd: int, folder: bytes, name: bytes, folder_mode: int) -> list[Any]:
    """Bind a datagram socket to a name in a folder, in place of a socket that no process has.

    Returns (device, inode) of its file; a sentence's end where the name is taken: `words.HELD`, `words.NO_SOCKET`.
    `folder_mode`: the folder is everybody's, gets this mode behind the binding, and what a user has put in our place
    goes; 0: its mode stays, and so does what there is.
    """
    path = os.path.join(folder, name)
    if folder_mode and _mode(folder) != folder_mode:
        _give_mode(folder, folder_mode & ~_OTHERS_MAKE_NAMES)
    why = _bound(fd, path)
    if why and folder_mode and _is_a_users(path):
        _give_mode(folder, folder_mode & ~_OTHERS_MAKE_NAMES)  # nobody is faster than we are then
        _clear_a_users(path)
        why = _bound(fd, path)
    if folder_mode:
        _give_mode(folder, folder_mode)
    if why:
        return [words.ANSWER, why]
    info = os.lstat(path)
    return [words.ANSWER, [info.st_dev, info.st_ino]]


def send(fd: int, path: bytes, data: bytes, uid: int) -> list[Any]:
    """Send a datagram from a socket to the socket file of this user."""
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM, fileno=fd)
    try:
        deliver(ours, os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC), data, uid)
    finally:
        ours.detach()
    return [words.ANSWER, None]


def deliver(ours: socket.socket, descriptor: int, data: bytes, uid: int) -> None:
    """Send to an opened socket file, which is closed; without waiting. PermissionError if it is not this user's."""
    try:
        # Through the descriptor: a name could be swapped for another client's socket in between.
        info = os.fstat(descriptor)
        if not stat.S_ISSOCK(info.st_mode) or info.st_uid != uid:
            raise PermissionError(errno.EPERM, f"it is not a socket of uid {uid}")
        ours.sendto(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL, f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def sweep(folder: bytes, prefix: bytes, age_seconds: float, entries: int) -> list[Any]:
    """Remove older sockets with such names that no process has; returns their number. Looks at so many entries."""
    removed = 0
    with os.scandir(folder) as found:
        for number, entry in enumerate(found):
            if number >= entries:
                break
            if entry.name.startswith(prefix) and _is_dead(entry.path, age_seconds):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
                    removed += 1
    return [words.ANSWER, removed]


def _bound(fd: int, path: bytes) -> str:
    """Bind to a name that is clear, or a dead socket's. Returns nothing once it is done, else why it is not."""
    why = _cleared(path)
    if why:
        return why
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM, fileno=fd)
    try:
        ours.bind(path)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return words.HELD  # somebody else was faster
    finally:
        ours.detach()
    os.chmod(path, _MODE)
    return ""


def _is_a_users(path: bytes) -> bool:
    """Whether it is neither root's nor ours: another daemon's would be."""
    try:
        return os.lstat(path).st_uid not in (0, os.geteuid())
    except FileNotFoundError:
        return True  # whose it was has removed it


def _clear_a_users(path: bytes) -> None:
    """Remove it; a folder, which may have anything in it, gets another name."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            theirs = Path(os.fsdecode(path))
            rename(theirs, theirs.with_name(f"not-ours-{secrets.token_hex(8)}"))
        else:
            os.unlink(path)


def _mode(folder: bytes) -> int:
    return stat.S_IMODE(os.lstat(folder).st_mode)


def _give_mode(folder: bytes, mode: int) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _cleared(path: bytes) -> str:
    """Clear a name. Returns nothing once it is free, else why it is left alone."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return ""
    if not stat.S_ISSOCK(info.st_mode):
        return words.NO_SOCKET
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return ""
    return words.HELD


def _is_dead(path: bytes, age_seconds: float) -> bool:
    """Whether no process has the socket bound. A young file may be between its making and its binding."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISSOCK(info.st_mode) or time.time() - info.st_mtime < age_seconds:
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as probe:
            probe.connect(f"/proc/self/fd/{descriptor}")  # sends nothing
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False
