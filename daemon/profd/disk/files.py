"""Files that survive kill -9 and power loss: whole or not there."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from profd.errors import BadInput, Exhausted, NotFound

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2  # linux/fs.h


def disk_error(error: OSError, path: Path, doing: str) -> Exhausted:
    """What to tell a person when a write fails: path, cause, free bytes, what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        cause = f"{error.strerror} ({_free(path)} bytes free there)"
        advice = "Free space (`profctl list`, `profctl rm`) or raise the limit"
    elif error.errno == errno.EROFS:
        cause = error.strerror or str(error)
        advice = "Look why (`dmesg`: a disk with errors?), mount it to be written again, or choose another --state-dir"
    else:
        cause = error.strerror or str(error)
        advice = "Give the daemon's user write access to it, or choose another --state-dir"
    return Exhausted(f"{doing} {path} failed: {cause}. {advice}, then try again.")


def _free(path: Path) -> str:
    with contextlib.suppress(OSError):
        found = os.statvfs(path if path.exists() else path.parent)
        return str(found.f_bavail * found.f_frsize)
    return "unknown"


@contextlib.contextmanager
def disk(path: Path, doing: str = "Writing") -> Iterator[None]:
    """OSError becomes Exhausted, with a sentence."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, path, doing) from error


def sync(path: Path) -> None:
    """Fsync a file or a directory. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def rename(path: Path, to: Path) -> None:
    """Give a file or a directory another name within its parent directory; one that has it is replaced. Raises OSError.

    ValueError where the parents differ, which not even the kernel shall be asked for: all renames from one directory
    into another on a file system wait for each other, beyond SIGKILL, and any user can make one wait for ever.
    """
    if path.parent != to.parent:
        raise ValueError(f"{path} would leave its directory for {to}")
    path.rename(to)


def exchange(path: Path, other: Path) -> None:
    """Let two names of one directory change places, so that neither is ever missing. Raises OSError.

    EINVAL where the filesystem cannot. ValueError for names of two directories, as `rename`.
    """
    if path.parent != other.parent:
        raise ValueError(f"{path} would leave its directory for {other}")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(path), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), os.fspath(path), None, os.fspath(other))


def write_atomic(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write or replace a file so that a reader, or a crash, finds the old or the new one. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(data)
            os.fsync(fd)
        finally:
            os.close(fd)
        rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync(path.parent)


def at_once(path: str, flags: int) -> int:
    """An opener: where a pipe lies, it is empty, and nobody waits for who writes into it."""
    return os.open(path, flags | os.O_NONBLOCK)


def plain(path: str, flags: int) -> int:
    """An opener of what another user may have put there: OSError for a link, a pipe, a device or a directory."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "it is no plain file", path)


def read_bounded(path: Path, limit: int) -> bytes:
    """A file's bytes. NotFound if there is none, BadInput if it is larger than `limit` or unreadable."""
    try:
        with open(path, "rb", opener=at_once) as file:
            data = file.read(limit + 1)
    except FileNotFoundError as error:
        raise NotFound(f"There is no {path}.") from error
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}.") from error
    if len(data) > limit:
        raise BadInput(f"{path} is larger than {limit} bytes: not written by profd.")
    return data
