"""One daemon per state directory and per socket.

Locks are `flock`s on files that stay: the kernel releases them with the
process, however it ends. A socket file without a server is a leftover of a
crash; the daemon replaces it only while it holds the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from profclient.owners import open_above, others_write

from profd.errors import BadInput, Unavailable
from profd.kernel.mounts import mounts
from profd.kernel.peer import peer_of


class Lock:
    """An exclusive lock on a file that holds its owner's pid; released by `close` or death."""

    def __init__(self, path: Path, what: str) -> None:
        """Take the lock. Raises Unavailable with the holder, BadInput if the file cannot be had."""
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise BadInput(f"{what}: {path} cannot be opened: {error.strerror}.{_hint()}") from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(self._fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise Unavailable(
                f"{what} is in use by another profd (pid {holder}, lock {path}). "
                "Stop that one, or give this one another --state-dir and --socket."
            ) from error
        os.ftruncate(self._fd, 0)
        os.write(self._fd, f"{os.getpid()}\n".encode())

    def close(self) -> None:
        """Release the lock. The file stays: unlinking it would let two daemons lock two files of one name."""
        os.close(self._fd)


def make_directory(path: Path, mode: int) -> None:
    """Make a directory with this mode if there is none. Raises BadInput with the next action."""
    try:
        if path.is_dir():  # to make one again takes the lock of its parent, which whoever lists that may hold for ever
            return
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=mode)
            path.chmod(mode)  # whatever the umask
    except OSError as error:
        raise BadInput(f"the directory {path} cannot be made: {error.strerror}.{_hint()}") from error
    if not path.is_dir():
        raise BadInput(f"{path} is not a directory")


def check_ours(path: Path) -> None:
    """BadInput for a directory in which another user can put links in the place of what we write and remove there."""
    found = path.stat()
    if found.st_uid not in (0, os.geteuid()):
        raise BadInput(
            f"the state directory {path} belongs to uid {found.st_uid}, who could lead profd elsewhere by links in it. "
            "Choose another, or make it root's."
        )
    if others_write(str(path)):
        raise BadInput(
            f"other users may write into the state directory {path} (mode {stat.S_IMODE(found.st_mode):04o}), and lead "
            f"profd elsewhere by links in it. Look at what is in it, then: chmod go-w {path}"
        )
    if os.geteuid() == 0 and (above := open_above(str(path))):
        raise BadInput(
            f"another user can put anything in the place of the state directory {path}, by {above}. "
            f"Choose another (--state-dir), or make {above} root's, and nobody else's to write."
        )


def check_one_filesystem(path: Path, mounted: Path = Path("/proc/self/mountinfo")) -> None:
    """BadInput where another filesystem is mounted within this directory, or one of its directories is a link to one:
    what is stored is renamed from directory to directory.
    """
    other = next(_mounts_within(path.resolve(), mounted), None) or next(_links_elsewhere(path), None)
    if other is not None:
        raise BadInput(
            f"{other} is on another filesystem than the state directory {path}, and profd renames files between "
            f"its directories. Mount that filesystem at {path}, or choose a --state-dir on it."
        )


def _mounts_within(path: Path, mounted: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for mount in mounts(mounted.read_bytes()):
            if path in Path(mount.at).parents:
                yield Path(mount.at)


def _links_elsewhere(path: Path) -> Iterator[Path]:
    device = path.stat().st_dev
    for entry in path.iterdir():
        if entry.is_symlink() and entry.is_dir() and entry.stat().st_dev != device:
            yield entry


def _hint() -> str:
    theirs = "" if os.geteuid() == 0 else " Without root, `profd --user` has places of your own."
    return f" Name another place with --state-dir or --socket.{theirs}"


def clear_socket(path: Path) -> None:
    """Remove a leftover socket file. Raises Unavailable with the pid of a process that answers there."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise BadInput(f"{path} exists and is not a socket; remove it or choose another --socket")
    holder = listener(path)
    if holder is not None:
        raise Unavailable(f"pid {holder} listens on {path} already; stop it or choose another --socket")
    path.unlink(missing_ok=True)


def remove_socket(path: Path) -> None:
    """Remove the file of our socket; a file of somebody else's that is no socket stays."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()


def listener(path: Path) -> int | None:
    """The pid that listens on this socket file; None: no process does; 0: one does, and its pid is unknown."""
    # Whichever type it is bound with: a wrong guess is EPROTOTYPE and proves it alive as well.
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_UNIX, kind) as sock:
            sock.setblocking(False)
            try:
                sock.connect(str(path))
            except ConnectionRefusedError:
                return None
            except FileNotFoundError:
                return None
            except OSError:
                continue
            return peer_of(sock).pid
    return 0
