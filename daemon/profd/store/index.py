"""Rollups beside the traces: `index/<trace>/<name>` (docs/store.md, Rollups; what is in one: `segments/rollups.py`).

What is lost here is worked out again. So nothing is synced, and it goes before any trace does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from profd.disk.eviction import Evictable, victims
from profd.disk.files import disk, rename
from profd.kernel import identity
from profd.segments.rollup_files import bytes_max, parsed

log = logging.getLogger("profd.store")


class Index:
    """The rollups of a store. Blocking; calls that change it come one at a time."""

    def __init__(self, root: Path, traces: Collection[str]) -> None:
        """Open, or create, that of the store in `root`, which has these traces; others' go. Raises Exhausted."""
        self.root = root / "index"
        self._sizes: dict[str, int] = {}
        with disk(self.root, "Creating"):
            self.root.mkdir(mode=0o700, exist_ok=True)
            for folder in self.root.iterdir():
                if folder.name in traces:
                    self._sizes[folder.name] = bytes_in(folder)
                else:
                    _remove(folder)

    @property
    def bytes(self) -> int:
        """Of all of them."""
        return sum(self._sizes.values())

    def directory(self, trace: str) -> Path:
        """Where those of a trace lie, if it has any."""
        return self.root / trace

    def staging(self) -> Path:
        """A fresh, empty directory for a job to write new ones to. Exhausted when the disk refuses."""
        path = self.root / f".staging-{secrets.token_hex(8)}"
        with disk(path, "Creating"):
            path.mkdir(mode=0o700)
        return path

    def take(self, staging: Path, traces: Sequence[str], names: Collection[str]) -> None:
        """What a worker has written about these traces, in their order, takes the place of what is there.

        BadInput for links and the like, Exhausted when the disk refuses; strangers are left out, and logged.
        """
        identity.make_readable(staging)
        with disk(self.root, "Storing"):
            for file, place, name in rollups_in(staging, len(traces), names):
                folder = self.root / traces[place]
                put(file, folder, name)
                self._sizes[folder.name] = bytes_in(folder)

    def drop(self, traces: Iterable[Evictable], limit: int) -> None:
        """Remove some until the others have `limit` bytes, by the rules by which traces go. `traces`: all of them."""
        sizes = self._sizes
        held = [replace(one, bytes=sizes[one.id], pinned=False) for one in traces if one.id in sizes]
        for one in victims(held, max(limit, 0)):
            self.remove(one.id)

    def remove(self, trace: str) -> None:
        """Remove those of a trace; one that has none is no error."""
        if self._sizes.pop(trace, None) is not None:
            _remove(self.root / trace)


def rollups_in(staging: Path, traces: int, names: Collection[str]) -> Iterator[tuple[Path, int, str]]:
    """(file, place of its trace, name) of what a job has left of so many traces; strangers are logged."""
    for file in os.scandir(staging):
        found = parsed(file.name)
        seen = file.stat(follow_symlinks=False)
        fits = found is not None and stat.S_ISREG(seen.st_mode) and seen.st_size <= bytes_max(found[1])
        if found is None or not fits or found[0] >= traces or found[1] not in names:
            log.warning("a worker left what is no rollup", extra={"file": file.name[:100]})
            continue
        yield Path(file.path), *found


def put(file: Path, folder: Path, name: str) -> None:
    """It takes the place of the one of this name in a folder, which is made."""
    folder.mkdir(mode=0o700, exist_ok=True)
    fresh = folder / f".{name}.{secrets.token_hex(4)}"
    os.link(file, fresh, follow_symlinks=False)
    rename(fresh, folder / name)


def bytes_in(folder: Path) -> int:
    """Of all files in it."""
    size = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            size += entry.stat(follow_symlinks=False).st_size
    return size


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
