"""The identity of the workers, and what they may therefore read and write in the store.

As root, workers run as an unprivileged user, and never as root: where they
cannot, the daemon does not start. The store stays root's: a worker may write
only into a directory at its gate, and may read (by group) what the store has
adopted and lies there, too, never change it. In `--user` mode workers keep the
daemon's uid, and of `make_readable` some checks are left.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profd.errors import BadInput, Exhausted
from profd.kernel.capabilities import effective
from profd.kernel.opening import may_open
from profd.kernel.privileges import Privilege, how_to_grant
from profd.kernel.privileges import missing as lacking

WORKER_USERS: Final = ("profd-worker", "nobody")  # the first that exists, unless one is configured
STAGING_FILES_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """The uid and gid workers take; None means the daemon's own."""

    uid: int | None = None
    gid: int | None = None
    name: str = ""

    @property
    def separate(self) -> bool:
        """Workers have a uid of their own."""
        return self.uid is not None


SAME: Final = WorkerIdentity()

_current = SAME


def use(identity: WorkerIdentity) -> None:
    """Set the identity of this daemon's workers; once, before the store is opened."""
    global _current
    _current = identity


def current() -> WorkerIdentity:
    """The identity of this daemon's workers."""
    return _current


def choose(name: str = "") -> WorkerIdentity:
    """The identity workers can have here. Raises BadInput, with what to do, where root would have to read for them."""
    if os.geteuid() != 0:
        return SAME
    if missing := _missing_capabilities():  # a container that dropped them, for example
        raise _never_root(
            f"the daemon has no {', '.join(privilege.name for privilege in missing)}",
            f"Give it these ({how_to_grant(missing)}), or start `profd --user` as the user whose processes it is for",
        )
    entry = _user(name)
    if entry is None:
        raise _never_root(
            f"none of the users {', '.join(WORKER_USERS)} exists",
            f"Create one: useradd --system --no-create-home --shell /usr/sbin/nologin {WORKER_USERS[0]}",
        )
    if entry.pw_uid == 0:
        raise _never_root(f"worker_user is {entry.pw_name}", "Name another user with worker_user")
    if path := unreadable(entry.pw_uid, entry.pw_gid):
        raise _never_root(
            f"user {entry.pw_name} cannot read {path}, which they need to run",
            "Install profd, and the Python it runs on, where every user can read it (for example below /opt), or "
            "name with worker_user a user who can read it there; `profd --user` serves its own user's processes alone",
        )
    return WorkerIdentity(entry.pw_uid, entry.pw_gid, entry.pw_name)


def _never_root(why: str, fix: str) -> BadInput:
    return BadInput(f"Workers read what strangers wrote, and never as root; but {why}. {fix}.")


def make_readable(path: Path) -> None:
    """Take over what a worker wrote: ours, read-only for workers, closed to everybody else.

    Links and special files in it raise BadInput: a worker that leaves one has
    been taken over. Raises OSError; Exhausted above STAGING_FILES_MAX.
    """
    for count, entry in enumerate(_entries(path)):
        if count >= STAGING_FILES_MAX:
            raise Exhausted(f"{path} holds more than {STAGING_FILES_MAX} files; no trace needs that many")
        _take_over(entry)


def _take_over(path: Path) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
    except OSError as error:
        raise BadInput(f"{path} is not a file a worker may leave: {error.strerror}") from error
    try:
        found = os.fstat(fd)
        directory = stat.S_ISDIR(found.st_mode)
        if not directory and (not stat.S_ISREG(found.st_mode) or found.st_nlink != 1):
            raise BadInput(f"{path} is not a file a worker may leave: links and special files are refused")
        if _current.separate:
            _give(fd, directory=directory)
            if not directory:
                _check_nobody_writes(fd, path)
    finally:
        os.close(fd)


def let_read(path: Path) -> None:
    """Let workers read a file that the daemon wrote. Raises OSError.

    Nothing looks for processes that have it open for writing: a program that another thread starts has a copy of every
    descriptor of the daemon for a moment, of the one by which the file was written, too.
    """
    if _current.separate:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _give(fd, directory=False)
        finally:
            os.close(fd)


def _give(fd: int, *, directory: bool) -> None:
    os.fchown(fd, os.geteuid(), _gid())
    os.fchmod(fd, 0o750 if directory else 0o640)


def _check_nobody_writes(fd: int, path: Path) -> None:
    """BadInput while a worker holds the file open for writing: it could change what others believe."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)  # to be had only then
    except OSError as error:
        if error.errno == errno.EAGAIN:
            raise BadInput(f"{path} is not a file a worker may leave: it is still open for writing") from error
        return  # a filesystem without leases
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def _entries(path: Path) -> Iterator[Path]:
    yield path
    for folder, directories, files in os.walk(path, followlinks=False):
        for name in (*directories, *files):
            yield Path(folder, name)


def _gid() -> int:
    return -1 if _current.gid is None else _current.gid


def _user(name: str) -> pwd.struct_passwd | None:
    for candidate in (name,) if name else WORKER_USERS:
        try:
            return pwd.getpwnam(candidate)
        except KeyError:
            continue
    if name:
        raise BadInput(f"the worker user {name!r} does not exist; create it or change `worker_user`")
    return None


def _missing_capabilities(status: Path = Path("/proc/self/status")) -> list[Privilege]:
    """What it takes to change identity, to hand files over and to take them back, and we do not have."""
    held = effective(status.read_text(encoding="ascii", errors="replace"))
    return [] if held is None else [privilege for privilege in lacking(held) if privilege.needed]


def unreadable(uid: int, gid: int) -> str:
    """The first path of our interpreter and packages that this uid cannot reach; empty if none."""
    needed = {Path(sys.executable).resolve(), Path(os.__file__), Path(__file__).resolve()}
    needed |= {Path(entry) for entry in sys.path if entry and Path(entry).is_dir()}
    for path in sorted(needed):
        for part in (*reversed(path.parents), path):
            if not may_open(part.stat(), uid, gid):
                return str(part)
    return ""
