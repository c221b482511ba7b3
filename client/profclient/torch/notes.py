"""Notes on builds that are no builds yet: one that is being made, and one that the daemon could not make.

Both lie beside the builds, for `profctl torch list`. A failure is remembered until somebody builds by hand: a daemon
that tried again at every capture would cost the host a compilation each time.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profclient.torch.builds import Key, entries

BUILDING: Final = ".building-"
_FAILED: Final = ".failed-"
_ORDERED: Final = ".ordered-"
_BYTES_MAX: Final = 16 << 10
_WHY_CHARACTERS_MAX: Final = 3000
_LEFT_SECONDS: Final = 2 * 3600  # of a directory that nobody has finished: longer than a build may take


@dataclass(frozen=True, slots=True)
class Note:
    """A build that is being made, or (`why`) could not be."""

    path: Path
    torch: str  # version
    machine: str
    since: str  # ISO time
    why: str = ""


@contextlib.contextmanager
def building(place: Path, key: Key, since: str) -> Iterator[None]:
    """Say that it is being made, for as long as this process does. Raises OSError."""
    path = place / f"{_ORDERED}{key.directory}"
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate()
        json.dump({"torch": key.torch, "machine": key.machine, "since": since}, file)
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def remember_failure(place: Path, key: Key, since: str, why: str) -> None:
    """Note a failed build, so that it is not tried again. No effect where the note cannot be written."""
    said = {"torch": key.torch, "machine": key.machine, "since": since, "why": why[-_WHY_CHARACTERS_MAX:]}
    with contextlib.suppress(OSError):
        path = place / f"{_FAILED}{key.directory}"
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            json.dump(said, file)


def forget_failure(place: Path, key: Key) -> None:
    """Remove the note: the build exists, or is to be tried again."""
    with contextlib.suppress(OSError):
        (place / f"{_FAILED}{key.directory}").unlink()


def failure(place: Path, key: Key) -> Note | None:
    """The failure of an earlier try."""
    return _read(place / f"{_FAILED}{key.directory}")


def all_of(place: Path) -> list[Note]:
    """Notes on builds that are being made there, and on those that failed."""
    building = [note for path in entries(place, _ORDERED) if _held(path) and (note := _read(path))]
    return building + [note for path in entries(place, _FAILED) if (note := _read(path))]


def sweep(place: Path) -> None:
    """Remove what builders left that were killed."""
    for path in entries(place, BUILDING):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime > _LEFT_SECONDS and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)


def _held(path: Path) -> bool:
    """Its builder lives."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _read(path: Path) -> Note | None:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)) as file:
            said = json.loads(file.read(_BYTES_MAX))
        torch, machine, since = (str(said[name]) for name in ("torch", "machine", "since"))
        return Note(path, torch, machine, since, str(said.get("why", "")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
