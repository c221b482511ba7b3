"""The two addresses libkineto looks for a daemon at, and what it takes to answer from them.

A reply from an unbound socket, from a filesystem socket to an abstract client,
or from outside the client's directory aborts the training process. So every
reply leaves the socket its request came in at, and only to an address of the
form that socket's clients have.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profd.kernel import passed
from profd.sources.kineto.holders import holder
from profd.sources.kineto.wire import CLIENT_PREFIX, DAEMON_NAME

SO_TIMESTAMPNS: Final = 35  # not named by Python's socket module; the same on every 64-bit Linux but sparc
_ADDRESS_BYTES: Final = 108
_CLIENT_NAME_BYTES: Final = len(CLIENT_PREFIX) + 36  # a uuid
_SWEEP_AGE_SECONDS: Final = 60.0
_SWEEP_ENTRIES: Final = 4096


_MODE: Final = 0o1733


class ModeOff(Exception):
    """One of the two modes cannot be served; the reason is a sentence."""


class Endpoint(ABC):
    """A bound socket. Used by one thread after it was opened."""

    mode: str

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    @abstractmethod
    def is_client(self, address: object) -> bool:
        """Whether a sender's address is one of those this socket may answer."""

    @abstractmethod
    def send(self, data: bytes, address: bytes | str, uid: int) -> None:
        """Send without waiting.

        BlockingIOError if its queue is full, PermissionError if the address is
        not one of `uid`'s, another OSError if nobody is there.
        """

    def close(self) -> None:
        """Let go of the address."""
        self.socket.close()

    def problem(self) -> str:
        """A sentence if the address was lost since it was bound, else empty."""
        return ""

    def sweep(self) -> int:
        """Remove what dead clients left behind; how many."""
        return 0


def _socket() -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    passed.take_none(sock)
    return sock


class AbstractEndpoint(Endpoint):
    """libkineto's default: a name without a file, visible in one network namespace."""

    mode = "abstract"
    _NAME: Final = b"\0" + DAEMON_NAME.encode() + b"\0"  # the trailing NUL is part of the name
    _CLIENT: Final = b"\0" + CLIENT_PREFIX.encode()

    @classmethod
    def open(cls, name: bytes = _NAME) -> AbstractEndpoint:
        """Bind the name. ModeOff if somebody holds it."""
        sock = _socket()
        try:
            sock.bind(name)
        except OSError as error:
            sock.close()
            shown = name.replace(b"\0", b"@").decode("ascii", "replace")
            raise ModeOff(f"the abstract socket {shown} is held by {holder(shown)} ({error.strerror})") from None
        return cls(sock)

    def is_client(self, address: object) -> bool:
        """An abstract name that libkineto gives its clients."""
        return isinstance(address, bytes) and address.startswith(self._CLIENT)

    def send(self, data: bytes, address: bytes | str, uid: int) -> None:
        """Send by name: nobody can bind a name that a client holds."""
        self.socket.sendto(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL, address)


@dataclass(frozen=True, slots=True)
class _Inode:
    device: int
    number: int

    @classmethod
    def of(cls, info: os.stat_result) -> _Inode:
        return cls(info.st_dev, info.st_ino)


class DirectoryEndpoint(Endpoint):
    """`KINETO_IPC_SOCKET_DIR`: socket files, which reach across network and pid namespaces."""

    mode = "directory"

    def __init__(self, sock: socket.socket, directory: Path, descriptor: int, inode: _Inode, every_user: bool) -> None:
        super().__init__(sock)
        self._every_user = every_user
        self.directory = directory
        self._descriptor = descriptor
        self._inode = inode

    @classmethod
    def open(cls, directory: Path, every_user: bool = True) -> DirectoryEndpoint:
        """Make the directory if need be and bind `dynolog` in it. ModeOff with the reason if that fails.

        `every_user`: processes of others are to reach it, too, which `problem` then looks at.
        """
        _check_length(directory)
        descriptor = _open_directory(directory)
        try:
            sock, inode = _bind(directory, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(sock, directory, descriptor, inode, every_user)

    def is_client(self, address: object) -> bool:
        """A client's file directly in our directory, spelled as we spell it."""
        if not isinstance(address, str):
            return False
        # The client compares our directory with its own as text: another spelling would abort it.
        folder, _, name = address.rpartition("/")
        return folder == str(self.directory) and name.startswith(CLIENT_PREFIX)

    def send(self, data: bytes, address: bytes | str, uid: int) -> None:
        """Send to a socket file that `uid` made."""
        name = str(address).rpartition("/")[2]
        descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._descriptor)
        try:
            # Through the descriptor: a name could be swapped for another client's socket in between.
            info = os.fstat(descriptor)
            if not stat.S_ISSOCK(info.st_mode) or info.st_uid != uid:
                raise PermissionError(f"{name} is not a socket of uid {uid}")
            flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
            self.socket.sendto(data, flags, f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Remove our socket file if it is still ours."""
        with contextlib.suppress(OSError):
            info = os.stat(DAEMON_NAME, dir_fd=self._descriptor, follow_symlinks=False)
            if _Inode.of(info) == self._inode:
                os.unlink(DAEMON_NAME, dir_fd=self._descriptor)
        super().close()
        os.close(self._descriptor)

    def bind_anew(self) -> None:
        """Where our file is gone: another socket with the same descriptor. ModeOff with the reason if that fails."""
        fresh = DirectoryEndpoint.open(self.directory, self._every_user)
        with fresh.socket:
            os.dup2(fresh.socket.fileno(), self.socket.fileno(), inheritable=False)
        os.dup2(fresh._descriptor, self._descriptor, inheritable=False)
        os.close(fresh._descriptor)
        self._inode = fresh._inode

    def problem(self) -> str:
        """A sentence if our socket file was removed, replaced or cannot be reached."""
        try:
            info = os.stat(DAEMON_NAME, dir_fd=self._descriptor, follow_symlinks=False)
        except OSError as error:
            return f"{self.directory / DAEMON_NAME} is gone ({error.strerror}); it is made anew within a second or so"
        if _Inode.of(info) == self._inode:
            return _closed_parent(self.directory) if self._every_user else ""
        path = str(self.directory / DAEMON_NAME)
        return f"{path} was taken over by {holder(path)}; stop it and restart profd"

    def sweep(self) -> int:
        """Remove socket files of clients that ended: libkineto leaves its own behind."""
        removed = 0
        with os.scandir(self._descriptor) as entries:
            for number, entry in enumerate(entries):
                if number >= _SWEEP_ENTRIES:
                    break
                if entry.name.startswith(CLIENT_PREFIX) and self._dead(entry.name):
                    with contextlib.suppress(OSError):
                        os.unlink(entry.name, dir_fd=self._descriptor)
                        removed += 1
        return removed

    def _dead(self, name: str) -> bool:
        """Nobody has the socket bound. A young file may be between its making and its binding."""
        try:
            descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._descriptor)
        except OSError:
            return False
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISSOCK(info.st_mode) or time.time() - info.st_mtime < _SWEEP_AGE_SECONDS:
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


def _check_length(directory: Path) -> None:
    room = _ADDRESS_BYTES - 1 - 1 - _CLIENT_NAME_BYTES
    if len(os.fsencode(directory)) > room:
        raise ModeOff(f"the directory {directory} is too long for a socket address: at most {room} bytes")


def _open_directory(directory: Path) -> int:
    """A descriptor of the directory, made if missing: 1733 for root, whose clients have any uid.

    They make names and use ours, and list nothing: who reads a directory into memory that a file system of theirs does
    not answer for has its lock, and whoever makes or removes a name here waits for it, beyond SIGKILL.
    """
    try:
        if not directory.is_dir():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ModeOff(f"the directory {directory} cannot be used: {error.strerror}") from None
    info = os.fstat(descriptor)
    if info.st_uid not in (0, os.geteuid()):
        os.close(descriptor)
        raise ModeOff(f"the directory {directory} belongs to uid {info.st_uid}, who could replace our socket")
    if os.geteuid() == 0 and stat.S_IMODE(info.st_mode) != _MODE:
        os.fchmod(descriptor, _MODE)
    return descriptor


def _closed_parent(directory: Path) -> str:
    """A sentence if users other than root cannot walk to the directory, although root serves all."""
    if os.geteuid() != 0:
        return ""
    for parent in directory.parents:
        with contextlib.suppress(OSError):
            if not parent.stat().st_mode & stat.S_IXOTH:
                return f"processes of other users cannot reach {directory}: chmod o+x {parent}"
    return ""


def _bind(directory: Path, descriptor: int) -> tuple[socket.socket, _Inode]:
    path = str(directory / DAEMON_NAME)
    _clear_stale(path, descriptor)
    sock = _socket()
    try:
        sock.bind(path)
        os.chmod(path, 0o666)  # noqa: S103 - clients of any uid send to it
        return sock, _Inode.of(os.stat(DAEMON_NAME, dir_fd=descriptor, follow_symlinks=False))
    except OSError as error:
        sock.close()
        raise ModeOff(f"the socket {path} cannot be made: {error.strerror}") from None


def _clear_stale(path: str, descriptor: int) -> None:
    """Remove a socket file that nobody has bound; ModeOff if somebody does."""
    try:
        info = os.stat(DAEMON_NAME, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(info.st_mode):
        raise ModeOff(f"{path} is not a socket; remove it and restart profd")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            try:
                os.unlink(DAEMON_NAME, dir_fd=descriptor)
            except OSError as error:
                raise ModeOff(f"the stale socket {path} cannot be removed: {error.strerror}") from None
        except OSError as error:
            raise ModeOff(f"the socket {path} cannot be probed: {error.strerror}") from None
        else:
            raise ModeOff(f"the socket {path} is held by {holder(path)}")
