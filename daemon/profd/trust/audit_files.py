"""The files of the audit log: one that is written, some older ones as they were, and `.kept`.

Of what is older than these files every uid keeps its newest lines, in a file in
which each has a fair share: nobody pushes out the lines of others, whatever they do.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from profd.disk.files import disk, rename
from profd.errors import BadInput
from profd.limits import AUDIT_FILES_KEPT
from profd.model.decodable import decodable

_OLD: Final = os.O_CLOEXEC | os.O_NOFOLLOW
_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | _OLD
_FRESH: Final = os.O_WRONLY | os.O_TRUNC | os.O_CREAT | _OLD
_ADMINS: Final = "admins"
_LINES_AT_A_TIME: Final = 128

log = logging.getLogger("profd.audit")


class AuditFiles:
    """`append` and `unsynced` are for one thread at a time; `sift` runs beside them."""

    def __init__(self, path: Path, bytes_max: int, kept_bytes_max: int) -> None:
        """Raises Exhausted where the file cannot be opened, BadInput where it is a pipe."""
        self._path = path
        self._bytes_max = bytes_max
        self._kept_bytes_max = kept_bytes_max
        self._surplus = self._numbered(AUDIT_FILES_KEPT + 1)
        self._full: list[int] = []  # descriptors of files that are to be synced and closed
        with disk(path, "Opening"):
            self._open()

    def _open(self) -> None:
        """Raises OSError, BadInput where it is a pipe."""
        fd = os.open(self._path, _APPEND, 0o600)
        found = os.fstat(fd)
        if stat.S_ISFIFO(found.st_mode):  # it keeps every caller waiting when it is full
            os.close(fd)
            raise BadInput(f"{self._path} is a pipe: move it away, then start profd again")
        self._fd, self._size = fd, found.st_size
        # The machine may have died within a line.
        self._torn = found.st_size > 0 and os.pread(fd, 1, found.st_size - 1) != b"\n"

    def append(self, line: bytes) -> None:
        """The whole line or nothing. Raises OSError."""
        if self._is_gone():
            self._begin_again()
        if self._size and self._size + len(line) > self._bytes_max and not self._surplus.exists():
            self._rotate()
        text = b"\n" + line if self._torn else line
        written = os.write(self._fd, text)
        if written < len(text):
            os.ftruncate(self._fd, self._size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self._size += written
        self._torn = False

    def unsynced(self) -> list[int]:
        """Descriptors of what may not be on the disk yet, which the caller syncs and closes."""
        full, self._full = self._full, []
        return [*full, os.dup(self._fd)]

    def sift(self) -> None:
        """Let go of the file that is one too many; `.kept` takes of it and of itself what it has room for.

        A crash in between loses nothing; some lines may then stand there twice. Raises OSError; to be tried again then.
        """
        if not self._surplus.exists():
            return
        kept = self._path.with_name(f"{self._path.name}.kept")
        fresh = self._path.with_name(f"{self._path.name}.kept.new")
        try:
            dropped = _sifted([kept, self._surplus], fresh, self._kept_bytes_max)
            rename(fresh, kept)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        self._surplus.unlink()
        if dropped:
            log.info("the oldest lines of the audit log are gone", extra={"lines": dropped})

    def close(self) -> None:
        """Nothing can be written any more."""
        for fd in (self._fd, *self._full):
            os.close(fd)
        self._fd, self._full = -1, []

    def _is_gone(self) -> bool:
        """Somebody has moved or removed the file that is written: nobody would find further lines."""
        try:
            return not os.path.samestat(os.lstat(self._path), os.fstat(self._fd))
        except FileNotFoundError:
            return True
        except OSError:  # the disk's own trouble, which the write will tell
            return False

    def _begin_again(self) -> None:
        """In a file of its name. Raises OSError, also where something else has the name."""
        before = self._fd
        try:
            self._open()
        except BadInput as error:
            raise OSError(errno.EINVAL, str(error)) from error
        self._full.append(before)
        log.warning("the audit log was moved or removed; it goes on in a new file", extra={"path": str(self._path)})

    def _rotate(self) -> None:
        """Until the surplus file is sifted, and where there is no room for a fresh one, the present one grows."""
        fresh = self._path.with_name(f"{self._path.name}.new")
        try:
            fd = os.open(fresh, _APPEND | os.O_TRUNC, 0o600)
        except OSError:
            return
        try:
            for number in range(AUDIT_FILES_KEPT, -1, -1):
                with contextlib.suppress(FileNotFoundError):
                    rename(self._numbered(number), self._numbered(number + 1))
            rename(fresh, self._path)
        except OSError:
            os.close(fd)
            return
        self._full.append(self._fd)
        self._fd, self._size = fd, 0

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path


@decodable
class _Line(msgspec.Struct):
    """What decides whose share a line counts against."""

    action: str = ""
    uid: int = -1
    admin: bool = False


def _sifted(sources: Iterable[Path], to: Path, room: int) -> int:
    """Copy of these files, oldest first, what each share has room for: its newest lines. How many were left out."""
    sources = [path for path in sources if path.exists()]
    sizes: Counter[str] = Counter()
    for line in _lines(sources):
        sizes[_share(line)] += len(line)
    allowed = _allowed(sizes, room)
    surplus = {share: size - allowed[share] for share, size in sizes.items()}
    dropped = 0
    with open(os.open(to, _FRESH, 0o600), "wb") as file:
        for line in _lines(sources):
            share = _share(line)
            if surplus[share] > 0:
                surplus[share] -= len(line)
                dropped += 1
            else:
                file.write(line)
        file.flush()
        os.fsync(file.fileno())
    return dropped


def _lines(sources: Iterable[Path]) -> Iterator[bytes]:
    for path in sources:
        with open(os.open(path, os.O_RDONLY | _OLD), "rb") as file:
            for number, line in enumerate(file):
                if not number % _LINES_AT_A_TIME:
                    time.sleep(0)  # else the event loop would wait for the interpreter's 5 ms
                yield line


def _share(line: bytes) -> str:
    """Root and admins have one; of others each has two, so that denials are not pushed out by what may be done."""
    try:
        read = msgspec.json.decode(line, type=_Line)
    except msgspec.DecodeError:
        return ""
    if read.uid == 0 or read.admin:
        return _ADMINS
    return f"{read.uid} denied" if read.action.endswith("denied") else str(read.uid)


def _allowed(sizes: Mapping[str, int], room: int) -> dict[str, int]:
    """Half for admins, if they need it; of the rest to each what it needs, or as much as to all who need more."""
    allowed = {_ADMINS: min(sizes.get(_ADMINS, 0), room // 2)}
    room -= allowed[_ADMINS]
    others = sorted((size, share) for share, size in sizes.items() if share != _ADMINS)
    for position, (size, share) in enumerate(others):
        allowed[share] = min(size, room // (len(others) - position))
        room -= allowed[share]
    return allowed
