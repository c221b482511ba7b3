"""The errands themselves, in their own process: a closed table of work on files, memory and names.

Each may wait for ever, for a file system that does not answer. The daemon waits for a bounded time, then gives this
process up.
"""

from __future__ import annotations

import ctypes
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from profd.errors import Exhausted
from profd.kernel.access import PASS, READ, finds, may
from profd.kernel.opening import may_open
from profd.kernel.rights import received_descriptors
from profd.targets.errands import sockets, words
from profd.targets.pickup import Inode, NotTaken, Taken, TargetDirectory

_PATH_COMPONENTS: Final = 64
_KEEP_SIZE: Final = 1  # FALLOC_FL_
_PUNCH_HOLE: Final = 2

_libc = ctypes.CDLL(None, use_errno=True)


class RemoteClaim:
    """The daemon's Claim, which counts bytes: asked over the conversation, in the middle of a question."""

    def __init__(self, conversation: socket.socket, written: int) -> None:
        self.written = written
        self._conversation = conversation

    def hold(self, written: int, least: int, most: int | None = None) -> int:
        """As Claim.hold. The daemon grants pieces smaller than it holds, so that it learns of progress."""
        self.written = written
        self._conversation.send(words.packed([words.HOLD, written, least, most]))
        answer = words.unpacked(_heard(self._conversation))
        if answer[0] != words.ANSWER:
            raise Exhausted(str(answer[1]))
        return int(answer[1])

    def wrote(self, written: int) -> None:
        """As Claim.wrote."""
        self.written = written
        self._conversation.send(words.packed([words.WROTE, written]))


class Work:
    """The directories of targets that one process holds, by numbers that the daemon gives."""

    def __init__(self, conversation: socket.socket) -> None:
        self._conversation = conversation
        self._directories: dict[int, TargetDirectory] = {}
        self._table: dict[str, Callable[..., list[Any]]] = {
            "open": self._open,
            "usable": self._usable,
            "look": self._look,
            "take": self._take,
            "remove": self._remove,
            "read": read,
            "same_root": same_root,
            "reachable": reachable,
            "exists": exists,
            "allocate": allocate,
            "free": free,
            "bind": sockets.bind,
            "send": sockets.send,
            "sweep": sockets.sweep,
        }

    def answer(self, question: list[Any]) -> list[Any]:
        """The result of a question; a refusal of the file system is an answer, too."""
        try:
            return self._table[question[0]](*question[1:])
        except OSError as error:
            return [words.FAILED, error.errno or 0, error.strerror or str(error)]
        except (TypeError, ValueError, LookupError) as error:  # of ours: it is told, and the next question answered
            return [words.FAILED, 0, f"{type(error).__name__}: {error}"]

    def _open(self, number: int, root: bytes, path: bytes, uid: int, gids: list[int] | None) -> list[Any]:
        opened = TargetDirectory.open(os.fsdecode(path), uid, Path(os.fsdecode(root)), gids)
        if isinstance(opened, NotTaken):
            return _refused(opened)
        self._directories[number] = opened
        return [words.ANSWER, None]

    def close(self, number: int) -> None:
        """Let go of a directory, if it was opened."""
        if number in self._directories:
            self._directories.pop(number).close()

    def _usable(self, number: int, gids: list[int]) -> list[Any]:
        directory = self._directories[number]
        return [words.ANSWER, [os.fsencode(directory.unwritable(gids)), directory.free_bytes()]]

    def _look(self, number: int, name: bytes) -> list[Any]:
        seen = self._directories[number].look(os.fsdecode(name))
        if seen is None:
            return [words.ANSWER, None]
        inode = seen.inode
        return [
            words.ANSWER,
            [inode.device, inode.number, seen.bytes, seen.uid, seen.regular, seen.links, seen.changed_ns],
        ]

    def _take(self, number: int, name: bytes, destination: bytes, written: int, data_max: int) -> list[Any]:
        room = RemoteClaim(self._conversation, written)
        where = Path(os.fsdecode(destination))
        taken = self._directories[number].take(os.fsdecode(name), where, room, data_max)
        if isinstance(taken, Taken):
            return [
                words.ANSWER,
                [taken.inode.device, taken.inode.number, taken.bytes, taken.changed_ns, os.fsencode(taken.cut)],
            ]
        return _refused(taken)

    def _remove(self, number: int, name: bytes, device: int, inode: int) -> list[Any]:
        return [words.ANSWER, self._directories[number].remove(os.fsdecode(name), Inode(device, inode))]


def serve(conversation: socket.socket) -> None:
    """Answer until the daemon lets go of the conversation."""
    work = Work(conversation)
    while True:
        raw, ancillary, _, _ = conversation.recvmsg(
            words.MESSAGE_BYTES_MAX + 1, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC
        )
        if not raw:
            return
        question, fds = words.unpacked(raw), received_descriptors(ancillary)
        if question[0] in words.WITH_DESCRIPTOR:
            question[1:1] = fds
        if question[0] == words.CLOSE:
            work.close(question[1])
        else:
            conversation.send(words.packed(work.answer(question)))
        for fd in fds:
            os.close(fd)


def _heard(conversation: socket.socket) -> bytes:
    return conversation.recv(words.MESSAGE_BYTES_MAX + 1)


def _refused(why: NotTaken) -> list[Any]:
    return [words.REFUSED, str(why.code), os.fsencode(why.message)]


def read(root: bytes, paths: list[bytes], limit: int, uid: int, gids: list[int]) -> list[Any]:
    """The first bytes of each of these regular files below a root, for this identity and through no link.

    None where that fails.
    """
    return [words.ANSWER, [read_without_links(root, path, limit, uid, gids) for path in paths]]


def same_root(root: bytes) -> list[Any]:
    """Whether this root is ours, too."""
    there = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return [words.ANSWER, os.path.samestat(os.fstat(there), os.stat("/"))]
    finally:
        os.close(there)


def reachable(root: bytes, paths: list[bytes], uid: int, gid: int) -> list[Any]:
    """Whether this identity can open all of these files below a root, by modes alone.

    Nothing is looked at beyond a folder that it cannot enter, nor beyond a link, which may be of whoever mounts there.
    """
    return [words.ANSWER, all(_reachable(root, path.split(b"/"), uid, gid) for path in paths)]


def _reachable(root: bytes, components: list[bytes], uid: int, gid: int) -> bool:
    here = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in filter(None, components):
            if not may_open(os.fstat(here), uid, gid):
                return False
            inner = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = inner
            if stat.S_ISLNK(os.fstat(here).st_mode):
                return True
        return may_open(os.fstat(here), uid, gid)
    finally:
        os.close(here)


def exists(path: bytes, uid: int, gids: list[int]) -> list[Any]:
    """Whether there is such a file, as far as this identity may know."""
    return [words.ANSWER, finds(path, uid, gids)]


def allocate(fd: int, begin: int, count: int) -> list[Any]:
    """Allocate memory for a part of a file. A target can hold the file's lock: this may never return."""
    os.posix_fallocate(fd, begin, count)
    return [words.ANSWER, None]


def free(fd: int, begin: int) -> list[Any]:
    """Free all memory of a file behind its begin. Waits as `allocate` does."""
    size = os.fstat(fd).st_size
    if _libc.fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_long(begin), ctypes.c_long(size - begin)):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return [words.ANSWER, None]


def read_without_links(root: bytes, path: bytes, limit: int, uid: int, gids: list[int]) -> bytes | None:
    """The first bytes of a regular file of a process that this identity may read, reached without following any link.

    None if that fails.
    """
    fd = _open_without_links(root, path.split(b"/")[1:], uid, gids)
    if fd is None:
        return None
    try:
        return os.read(fd, limit)
    except OSError:
        return None
    finally:
        os.close(fd)


def _open_without_links(root: bytes, components: list[bytes], uid: int, gids: list[int]) -> int | None:
    """Open the regular file root/a/b/c, refusing a link at any component but the root; None if that fails."""
    if len(components) > _PATH_COMPONENTS or any(part in (b"", b".", b"..") for part in components):
        return None
    folder_flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        fd = os.open(root, folder_flags)
        for place, part in enumerate(components):
            last = place == len(components) - 1
            flags = os.O_PATH | os.O_CLOEXEC if last else folder_flags
            try:
                if not may(fd, PASS, uid, gids):
                    return None
                inner = os.open(part, flags | os.O_NOFOLLOW, dir_fd=fd)
            finally:
                os.close(fd)
            fd = inner
        return _opened_if_regular(fd, uid, gids)
    except (OSError, ValueError):
        return None


def _opened_if_regular(path_fd: int, uid: int, gids: list[int]) -> int | None:
    """The file behind an O_PATH descriptor, which is closed. Its type comes first: opening a device has effects."""
    try:
        if not stat.S_ISREG(os.fstat(path_fd).st_mode) or not may(path_fd, READ, uid, gids):
            return None
        return os.open(f"/proc/self/fd/{path_fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(path_fd)
