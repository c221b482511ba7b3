"""The two addresses libkineto looks for a daemon at, and what it takes to answer from them.

A reply from an unbound socket, from a filesystem socket to an abstract client,
or from outside the client's directory aborts the training process. So every
reply leaves the socket its request came in at, and only to an address of the
form that socket's clients have.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from pathlib import Path
from typing import Final, TypeVar

from profd.kernel import passed
from profd.kernel.opening import open_known
from profd.sources.kineto.holders import holder, keeper
from profd.sources.kineto.wire import CLIENT_PREFIX, DAEMON_NAME
from profd.targets.errands import names
from profd.targets.errands.child import NoAnswer, Unanswered
from profd.targets.errands.sockets import deliver

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

SO_TIMESTAMPNS: Final = 35  # not named by Python's socket module; the same on every 64-bit Linux but sparc
_ADDRESS_BYTES: Final = 108
_CLIENT_NAME_BYTES: Final = len(CLIENT_PREFIX) + 36  # a uuid
_SWEEP_AGE_SECONDS: Final = 60.0
_SWEEP_ENTRIES: Final = 4096
_MODE: Final = 0o1733


class ModeOff(Exception):
    """One of the two modes cannot be served; the reason is a sentence."""


class OutOfReach(ModeOff):
    """For now: nobody can do anything with names in its directory."""


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
        """Send without waiting, for more than a moment.

        BlockingIOError if its queue is full, PermissionError if the address is
        not one of `uid`'s, another OSError if nobody is there.
        """

    async def close(self) -> None:
        """Let go of the address."""
        self.socket.close()

    def problem(self) -> str:
        """A sentence if the address was lost since it was bound, else empty."""
        return ""

    async def sweep(self) -> int:
        """Remove what dead clients left behind; how many."""
        return 0


def _socket() -> socket.socket:
    return _prepared(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC))


def _prepared(sock: socket.socket) -> socket.socket:
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    passed.take_none(sock)
    return sock


class AbstractEndpoint(Endpoint):
    """libkineto's default: a name without a file, visible in one network namespace."""

    mode = "abstract"
    NAME: Final = b"\0" + DAEMON_NAME.encode() + b"\0"  # the trailing NUL is part of the name
    _CLIENT: Final = b"\0" + CLIENT_PREFIX.encode()

    @classmethod
    def open(cls, name: bytes = NAME) -> AbstractEndpoint:
        """Bind the name. ModeOff if somebody holds it."""
        sock = _socket()
        try:
            sock.bind(name)
        except OSError as error:
            sock.close()
            shown = name.replace(b"\0", b"@").decode("ascii", "replace")
            raise ModeOff(f"the abstract socket {shown} is held by {holder(shown)} ({error.strerror})") from None
        return cls(sock)

    @classmethod
    def again(cls, kept: socket.socket) -> AbstractEndpoint:
        """One that an earlier daemon has bound, with what was sent to it since then."""
        return cls(_prepared(kept))

    def is_client(self, address: object) -> bool:
        """An abstract name that libkineto gives its clients."""
        return isinstance(address, bytes) and address.startswith(self._CLIENT)

    def send(self, data: bytes, address: bytes | str, uid: int) -> None:
        """Send by name: nobody can bind a name that a client holds."""
        self.socket.sendto(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL, address)


class DirectoryEndpoint(Endpoint):
    """`KINETO_IPC_SOCKET_DIR`: socket files, which reach across network and pid namespaces.

    Everybody makes names in that directory, and so may keep its lock. A process that can be given up makes, lists and
    removes names there (errands/names.py); what is done here waits for nobody.
    """

    mode = "directory"

    def __init__(self, directory: Path, folder: int, every_user: bool) -> None:
        super().__init__(_socket())  # without a name, until it is bound
        self.directory = directory
        self.out_of_reach = ""  # a sentence while somebody keeps the directory's lock
        self._every_user = every_user
        self._unbound = ""  # why it could not be bound anew
        self._folder = folder
        self._file = -1  # of our socket

    @classmethod
    async def open(cls, directory: Path, every_user: bool = True) -> DirectoryEndpoint:
        """Make the directory if need be and bind `dynolog` in it. ModeOff with the reason if that fails.

        Where somebody keeps the directory's lock it is not bound yet, which is `lost`.
        `every_user`: processes of others are to reach it, too, which `problem` then looks at.
        """
        _check_length(directory)
        found = cls(directory, await asyncio.to_thread(_open_directory, directory), every_user)
        try:
            await found._bind()
        except OutOfReach:
            return found
        except BaseException:
            found._let_go()
            raise
        return found

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
        try:
            descriptor = open_known(self._folder, name)
        except NotImplementedError:
            names.send(self.socket, self.directory / name, data, uid)
        else:
            deliver(self.socket, descriptor, data, uid)

    async def close(self) -> None:
        """Let go of the socket. Its file stays: another user's in its place would be asked by everybody's programs."""
        self._let_go()

    async def bind_anew(self) -> None:
        """Where our file is gone: another socket with the same descriptor. ModeOff with the reason if that fails."""
        fresh = await asyncio.to_thread(_open_directory, self.directory)
        os.dup2(fresh, self._folder, inheritable=False)
        os.close(fresh)
        try:
            await self._bind()
        except ModeOff as error:
            self._unbound = str(error)
            raise
        self._unbound = ""

    def lost(self) -> bool:
        """Whether clients that look for our socket file do not find it."""
        return self._file < 0 or not self._found()

    def problem(self) -> str:
        """A sentence if our socket file was removed, replaced or cannot be reached."""
        if self.out_of_reach:
            return self.out_of_reach
        path = self.directory / DAEMON_NAME
        found = self._found() if self._file >= 0 else None
        if found is None:
            return self._unbound or f"{path} is gone; it is made anew within a second or so"
        if found:
            return _closed_parent(self.directory) if self._every_user else ""
        return _taken_over(path, holder(str(path)))

    async def sweep(self) -> int:
        """Remove socket files of clients that ended: libkineto leaves its own behind."""
        with contextlib.suppress(OutOfReach, OSError):
            return await self._asked(names.sweep(self.directory, CLIENT_PREFIX, _SWEEP_AGE_SECONDS, _SWEEP_ENTRIES))
        return 0

    async def _bind(self) -> None:
        path = self.directory / DAEMON_NAME
        with _socket() as fresh:
            try:
                inode = await self._asked(names.bind(fresh, path, _MODE if os.geteuid() == 0 else 0))
                file = self._own_file()
            except names.Taken as taken:
                if not taken.held:
                    raise ModeOff(f"{path} is not a socket; remove it and restart profd") from None
                raise ModeOff(f"the socket {path} is held by {await _holder(path)}") from None
            except OSError as error:
                raise ModeOff(f"the socket {path} cannot be made: {error.strerror}") from None
            if names.inode_of(file) != inode:
                os.close(file)
                raise ModeOff(_taken_over(path, await _holder(path)))
            self._forget_file()
            self._file = file
            os.dup2(fresh.fileno(), self.socket.fileno(), inheritable=False)

    def _own_file(self) -> int:
        """Right behind the binding: nobody but root can have removed it."""
        try:
            return open_known(self._folder, DAEMON_NAME)
        except NotImplementedError:
            return os.open(DAEMON_NAME, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._folder)

    def _found(self) -> bool | None:
        """Whether our name means our socket file. None: it means nothing."""
        own = os.fstat(self._file)
        try:
            found = open_known(self._folder, DAEMON_NAME)
        except (OSError, NotImplementedError):
            return True if own.st_nlink else None
        try:
            return os.path.samestat(os.fstat(found), own)
        finally:
            os.close(found)

    async def _asked(self, asking: Coroutine[None, None, Answer]) -> Answer:
        """The outcome of sending. OutOfReach where there is no answer, which `problem` says until there is one."""
        try:
            answer = await asking
        except Unanswered as error:
            if not self.out_of_reach:
                self.out_of_reach = _out_of_reach(self.directory, await asyncio.to_thread(keeper, self.directory))
                log.error("kineto: %s", self.out_of_reach)
            raise OutOfReach(self.out_of_reach) from error
        except NoAnswer as error:
            raise OutOfReach(f"names in {self.directory} cannot be looked at: {error}") from error
        except (names.Taken, OSError):
            self._answers()
            raise
        self._answers()
        return answer

    def _answers(self) -> None:
        if self.out_of_reach:
            self.out_of_reach = ""
            log.warning("kineto: names in %s are in reach again", self.directory)

    def _let_go(self) -> None:
        self._forget_file()
        self.socket.close()
        os.close(self._folder)

    def _forget_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


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
        descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ModeOff(f"the directory {directory} cannot be used: {error.strerror}") from None
    info = os.fstat(descriptor)
    if info.st_uid not in (0, os.geteuid()):
        os.close(descriptor)
        raise ModeOff(f"the directory {directory} belongs to uid {info.st_uid}, who could replace our socket")
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


def _taken_over(path: Path, by: str) -> str:
    return f"{path} was taken over by {by}; stop it and restart profd"


async def _holder(path: Path) -> str:
    return await asyncio.to_thread(holder, str(path))


def _out_of_reach(directory: Path, whose: str) -> str:
    return (
        f"somebody has kept the lock of {directory} since {time.strftime('%H:%M')}{whose and f': {whose}'}. Processes "
        "that have registered are served, others cannot register: end that user's processes, or their file system "
        "(/sys/fs/fuse/connections/*/abort)"
    )
