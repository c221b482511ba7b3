"""Files that a target wrote, taken without trusting the target.

A target may put anything where its trace is expected: a symbolic link to a
file of somebody else, a FIFO that blocks its opener, a hard link, a file that
is swapped while it is read. So paths are resolved by openat2(2) inside the
target's own root and through no link; a file is looked at before it is opened
for reading, and opened by what was looked at, not by its name again; and only
the very inode that was taken is unlinked.

A `TargetDirectory` holds a descriptor, so files can still be taken after the
target ended and its /proc entry is gone. All of it may wait for ever, for a file
system that is dead: so it runs in processes of `errands`, never in the daemon.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from profd import limits
from profd.disk.copying import Room, copy
from profd.disk.files import rename
from profd.disk.space import alone
from profd.errors import Exhausted
from profd.kernel.access import PASS, WRITE, may
from profd.kernel.opening import openat2

_RESOLVE: Final = 0x02 | 0x04 | 0x10  # NO_MAGICLINKS | NO_SYMLINKS | IN_ROOT


class Refusal(StrEnum):
    """Why a file or directory was not taken."""

    MISSING = "missing"
    LINK = "symbolic_link"
    NOT_REGULAR = "not_regular"
    HARD_LINKED = "hard_linked"
    FOREIGN = "foreign_owner"
    TOO_LARGE = "too_large"
    SWAPPED = "swapped"
    UNREADABLE = "unreadable"
    NO_SPACE = "no_space"
    OTHER_PROGRAM = "other_program"
    NO_ANSWER = "does_not_answer"  # who looked at it was given up (errands/)


@dataclass(frozen=True, slots=True)
class NotTaken:
    """Nothing was taken and nothing deleted. `message` is a sentence for the user."""

    code: Refusal
    message: str


@dataclass(frozen=True, slots=True)
class Inode:
    """One file, whatever it is called."""

    device: int
    number: int


@dataclass(frozen=True, slots=True)
class FoundFile:
    """The file under a name now; not verified beyond that."""

    inode: Inode
    bytes: int
    uid: int
    regular: bool
    links: int
    changed_ns: int  # ctime, Unix ns: of a finished trace the moment it was renamed


@dataclass(frozen=True, slots=True)
class Taken:
    """A verified copy in the daemon's hands."""

    path: Path
    inode: Inode
    bytes: int  # of data: holes take nothing
    changed_ns: int
    cut: str = ""  # a sentence where it is not all that the target wrote


class Ledger(Protocol):
    """The counter of written bytes: a disk.space.Claim, or one that is asked from afar."""

    written: int

    def hold(self, written: int, least: int, most: int | None = None) -> int:
        """See Claim.hold."""
        ...

    def wrote(self, written: int) -> None:
        """See Claim.wrote."""
        ...


def _openat2(directory: int, path: str, flags: int) -> int:
    """A descriptor of `path` resolved inside `directory` and through no link. OSError as open(2)."""
    return openat2(directory, path, flags, _RESOLVE)


_BY_ERRNO: Final = {
    errno.ENOENT: (Refusal.MISSING, "does not exist"),
    errno.ENOTDIR: (Refusal.MISSING, "is not a directory"),
    errno.ELOOP: (Refusal.LINK, "is or goes through a symbolic link, which is never followed; give the real path"),
    errno.EAGAIN: (Refusal.UNREADABLE, "is held by a lease (F_SETLEASE); let go of it before the trace is finished"),
    errno.ENOSYS: (Refusal.UNREADABLE, "cannot be opened safely: this kernel has no openat2 (Linux 5.6)"),
}


def _refused(path: str, error: OSError) -> NotTaken:
    code, says = _BY_ERRNO.get(error.errno or 0, (Refusal.UNREADABLE, f"cannot be opened: {error.strerror or error}"))
    return NotTaken(code, f"{path} {says}")


def _reached(top: int, path: str, uid: int, gids: Collection[int]) -> int | NotTaken:
    """A descriptor of the folder at `path`, gone to step by step with this identity's rights. OSError as open(2)."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        return NotTaken(Refusal.UNREADABLE, f"{path} has .. in it; give the real path")
    here = _openat2(top, ".", os.O_PATH | os.O_DIRECTORY)
    try:
        for place in range(len(parts) + 1):
            if not may(here, PASS, uid, gids):
                shown = "/" + "/".join(parts[:place])
                return NotTaken(Refusal.UNREADABLE, f"{path} is out of reach of uid {uid}, who may not enter {shown}")
            if place < len(parts):
                inner = _openat2(here, parts[place], os.O_PATH | os.O_DIRECTORY)
                os.close(here)
                here = inner
        return _openat2(here, ".", os.O_RDONLY | os.O_DIRECTORY)
    finally:
        os.close(here)


class TargetDirectory:
    """A directory as the target sees it. Close it; it is one descriptor."""

    def __init__(self, descriptor: int, path: str, uid: int) -> None:
        self._descriptor = descriptor
        self.path = path
        self.uid = uid

    @classmethod
    def open(cls, path: str, uid: int, root: Path, gids: Collection[int] | None = None) -> TargetDirectory | NotTaken:
        """Open absolute `path` below `root` (/proc/PID/root, or / for our own) for files of `uid`.

        `gids`: of a process that named the path; it is told nothing of folders that it could not reach itself.
        """
        if not path.startswith("/") or "\0" in path:
            return NotTaken(Refusal.MISSING, f"{path!r} is not an absolute path")
        try:
            top = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            return _refused(str(root), error)
        try:
            if gids is None:
                return cls(_openat2(top, path, os.O_RDONLY | os.O_DIRECTORY), path, uid)
            opened = _reached(top, path, uid, gids)
            return opened if isinstance(opened, NotTaken) else cls(opened, path, uid)
        except OSError as error:
            return _refused(path, error)
        finally:
            os.close(top)

    def close(self) -> None:
        """Let go of the descriptor; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def free_bytes(self) -> int:
        """The bytes that an ordinary user may still write on this filesystem. OSError if it is gone."""
        info = os.fstatvfs(self._descriptor)
        return info.f_bavail * info.f_frsize

    def unwritable(self, gids: Collection[int]) -> str:
        """A sentence if `uid` with these groups surely cannot make files here, else empty."""
        if os.fstatvfs(self._descriptor).f_flag & os.ST_RDONLY:
            return f"{self.path} is on a read-only filesystem"
        if may(self._descriptor, WRITE | PASS, self.uid, gids):
            return ""
        mode = stat.S_IMODE(os.fstat(self._descriptor).st_mode)
        return f"{self.path} (mode {mode:04o}) is not writable by uid {self.uid}"

    def look(self, name: str) -> FoundFile | None:
        """The file under a name, links not followed. None if nothing does."""
        try:
            info = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except OSError:
            return None
        return FoundFile(
            Inode(info.st_dev, info.st_ino),
            info.st_size,
            info.st_uid,
            stat.S_ISREG(info.st_mode),
            info.st_nlink,
            info.st_ctime_ns,
        )

    def take(
        self, name: str, destination: Path, claim: Ledger | None = None, data_max: int = limits.PICKUP_BYTES_MAX
    ) -> Taken | NotTaken:
        """Copy a file of the target to `destination` (must not exist; gets mode 0600).

        What is copied is the data that the file had when it was looked at, `data_max` bytes of it at most and no
        more than `claim` is promised; holes stay holes. The copy enters by rename, so that much of it is there or
        nothing. The target's file stays; `remove` takes it away. Blocks for as long as copying takes.
        """
        shown = f"{self.path}/{name}"
        try:
            looked = _openat2(self._descriptor, name, os.O_PATH | os.O_NOFOLLOW)
        except OSError as error:
            return _refused(shown, error)
        try:
            info = os.fstat(looked)
            refused = self._unfit(shown, info)
            if refused is not None:
                return refused
            # By descriptor: the name may mean another file by now.
            # At once: whoever holds a lease on their file (fcntl(2), F_SETLEASE) has the opener wait for 45 s.
            source = os.open(f"/proc/self/fd/{looked}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as error:
            return _refused(shown, error)
        finally:
            os.close(looked)
        try:
            return self._copy(name, source, info, destination, claim or alone(), data_max)
        except Exhausted as error:
            return NotTaken(Refusal.NO_SPACE, f"no room for {shown}: {error}")
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return NotTaken(Refusal.NO_SPACE, f"no space for {shown} in the daemon's journal")
            return _refused(shown, error)
        finally:
            os.close(source)

    def remove(self, name: str, inode: Inode) -> bool:
        """Unlink a name if it still means this file of the target. Whether it is gone."""
        seen = self.look(name)
        if seen is None or seen.inode != inode or seen.uid != self.uid:
            return False
        if not seen.regular or seen.links != 1:
            return False
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except OSError:
            return False
        return True

    def _unfit(self, shown: str, info: os.stat_result) -> NotTaken | None:
        if stat.S_ISLNK(info.st_mode):
            return NotTaken(Refusal.LINK, f"{shown} is a symbolic link, which is never followed")
        if not stat.S_ISREG(info.st_mode):
            return NotTaken(Refusal.NOT_REGULAR, f"{shown} is not a regular file")
        if info.st_nlink != 1:
            return NotTaken(Refusal.HARD_LINKED, f"{shown} has {info.st_nlink} hard links; a trace has one")
        if info.st_uid != self.uid:
            return NotTaken(Refusal.FOREIGN, f"{shown} belongs to uid {info.st_uid}, the target is uid {self.uid}")
        if info.st_size > limits.TRACE_FILE_BYTES_MAX:
            return NotTaken(Refusal.TOO_LARGE, f"{shown} has {info.st_size} bytes, above the limit")
        return None

    def _copy(
        self, name: str, source: int, info: os.stat_result, destination: Path, claim: Ledger, data_max: int
    ) -> Taken | NotTaken:
        inode = Inode(info.st_dev, info.st_ino)
        before = claim.written
        data = min(info.st_blocks * 512, info.st_size, data_max)
        claim.hold(before, data, data)
        part = destination.with_name(destination.name + ".part")
        target = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            room: Room = lambda copied, more: claim.hold(before + copied, more, max(more, data - copied))  # noqa: E731
            copied, why = copy(source, target, info.st_size, data_max, room)
            claim.wrote(before + copied)
            after = os.fstat(source)
            seen = self.look(name)
            if seen is None or seen.inode != inode or after.st_nlink != 1 or after.st_uid != self.uid:
                return NotTaken(Refusal.SWAPPED, f"{self.path}/{name} was replaced while it was read")
            if not why and after.st_size != info.st_size:
                why = f"it had {info.st_size} bytes at first and {after.st_size} when they had been copied"
            rename(part, destination)
        finally:
            os.close(target)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
        cut = f"{self.path}/{name} is cut off: {why}" if why else ""
        return Taken(destination, inode, copied, info.st_ctime_ns, cut)
