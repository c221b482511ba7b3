"""A directory of ours that may lie in another user's: what is made in it goes through no link that they put there."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Inside:
    """Names below one directory, relative to it, with `/`. Every method raises OSError, also for a link on the way.

    The owner of a directory above can put another one in the place of each that is made here, between any two calls.
    """

    def __init__(self, above: int, name: str) -> None:
        """Open the directory of that name in the one that is open as `above`."""
        self._top = os.open(name, _DIRECTORY, dir_fd=above)

    def close(self) -> None:
        """Let go of it."""
        os.close(self._top)

    @property
    def path(self) -> Path:
        """Of the directory, for as long as it is open: of this process alone."""
        return Path(f"/proc/self/fd/{self._top}")

    def make(self, path: str) -> None:
        """A directory that is new, and those above it that are missing."""
        *above, name = path.split("/")
        for count in range(1, len(above) + 1):
            with contextlib.suppress(FileExistsError):
                self._make("/".join(above[:count]))
        self._make("/".join([*above, name]))

    def create(self, path: str) -> BinaryIO:
        """A file that is new, open for writing."""
        folder, _, name = path.rpartition("/")
        with self._opened(folder) as above:
            return open(os.open(name, _NEW_FILE, 0o666, dir_fd=above), "wb")

    def remove(self, path: str) -> None:
        """A directory with all that is in it, as far as that can be."""
        folder, _, name = path.rpartition("/")
        with self._opened(folder) as above:
            shutil.rmtree(name, ignore_errors=True, dir_fd=above)

    def sync(self, path: str = "") -> None:
        """Have the names in a directory on the disk."""
        with self._opened(path) as folder:
            os.fsync(folder)

    def _make(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        with self._opened(folder) as above:
            os.mkdir(name, dir_fd=above)

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        folder = os.dup(self._top)
        try:
            for part in path.split("/") if path else ():
                below = os.open(part, _DIRECTORY, dir_fd=folder)
                os.close(folder)
                folder = below
            yield folder
        finally:
            os.close(folder)
