"""Rollups of exported captures, in the cache of the user that asks: nothing is written where a capture lies.

    $XDG_CACHE_HOME/profd/rollups/<digest of a copy of a capture and a trace>/<name>

Bounded: those that were written longest ago go first. A user who removes the directory loses nothing but time.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from profclient.folders import cache_folder
from profclient.owners import are_ours

from profd.limits import ROLLUPS_CACHED_BYTES_MAX
from profd.store.index import bytes_in, put, rollups_in

_STAGING: Final = ".staging-"


def cache() -> Path | None:
    """Where they lie; None for a user without a home, and where another user can write: whole folders are removed."""
    with contextlib.suppress(RuntimeError):
        folder = cache_folder()
        given = folder.parent
        if are_ours(str(given.parent), given.name, folder.name, "rollups"):
            return folder / "rollups"
    return None


class CachedRollups:
    """The rollups of all captures that were asked. Blocking; several processes may use it at once."""

    def __init__(self, root: Path | None, most: int = ROLLUPS_CACHED_BYTES_MAX) -> None:
        self._root = root
        self._most = most

    def directory(self, copy: str, trace: str) -> Path | None:
        """The rollups of a trace of this copy of a capture, which is named by digests; None where nothing is kept."""
        if self._root is None:
            return None
        return self._root / hashlib.sha256(f"{copy} {trace}".encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def staging(self) -> Path | None:
        """A fresh, empty directory for a job to write new ones to; None where there can be none."""
        if self._root is None:
            return None
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix=_STAGING, dir=self._root))
        except OSError:
            return None

    def take(self, staging: Path, folders: Sequence[Path], names: Collection[str]) -> None:
        """What a job has written about these traces takes the place of what is there; then what is too much goes."""
        for file, place, name in rollups_in(staging, len(folders), names):
            put(file, folders[place], name)
        left, kept = self._most, sorted(self._folders(), key=lambda one: one[0], reverse=True)
        for _, size, folder in kept:
            left -= size
            if left < 0 and not staging.samefile(folder):
                shutil.rmtree(folder, ignore_errors=True)

    def _folders(self) -> Iterator[tuple[float, int, Path]]:
        for folder in self._root.iterdir() if self._root else ():
            with contextlib.suppress(OSError):  # another process may be as far
                yield folder.stat().st_mtime, bytes_in(folder), folder
