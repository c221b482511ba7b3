"""The socket files of the daemon, which notices when somebody cleans the directory and takes its address away.

A listening socket goes on existing without its file, and no client can reach it
any more. The daemon therefore looks at the files once a second (a stat(2) each)
and makes a lost one anew. A file of somebody else's in its place stays, with a
line in the log. A file in a directory of all users has another check: a look by
name may wait there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profd.errors import ProfdError

LOOK_SECONDS: Final = 1.0

log = logging.getLogger("profd")

Inode = tuple[int, int]


@dataclass(slots=True)
class _File:
    path: Path
    remake: Callable[[], Awaitable[None]]
    lost: Callable[[], bool] | None
    inode: Inode | None = None
    told: str = ""  # why it could not be made anew, when that was last said

    def is_lost(self) -> bool:
        """Whether the file is gone, or another one."""
        return self.lost() if self.lost is not None else self.inode is None or _inode(self.path) != self.inode

    def note(self) -> None:
        """Remember the file that is there."""
        self.told = ""
        if self.lost is None:
            self.inode = _inode(self.path)


class SocketFiles:
    """Looks from `open` to `close`. `remade` counts by the names that `add` was given."""

    def __init__(self) -> None:
        self.also: Callable[[], object] | None = None  # done once a second, too
        self.remade: Counter[str] = Counter()
        self._files: dict[str, _File] = {}
        self._task: asyncio.Task[None] | None = None

    def add(
        self, name: str, path: Path, remake: Callable[[], Awaitable[None]], lost: Callable[[], bool] | None = None
    ) -> None:
        """Watch a file that exists. `remake` binds it anew; an error of it goes to the log, and it is called again.

        `lost`: tells whether the file is gone, in place of a look.
        """
        file = self._files[name] = _File(path, remake, lost)
        file.note()

    def open(self) -> None:
        """Begin to look."""
        self._task = asyncio.get_running_loop().create_task(self._watch(), name="profd-socket-files")

    async def close(self) -> None:
        """Look no more; a file that is lost now stays lost."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def look(self) -> None:
        """Make lost files anew."""
        for name, file in self._files.items():
            if file.is_lost():
                await self._remake(name, file)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()
            if self.also is not None:
                self.also()

    async def _remake(self, name: str, file: _File) -> None:
        try:
            await file.remake()
        except Exception as error:  # the other sockets are still to be looked at
            if str(error) != file.told:
                file.told = str(error)
                fault = None if isinstance(error, OSError | ProfdError) else error
                said = {"path": str(file.path), "why": file.told}
                log.error("a socket is gone and cannot be made anew", extra=said, exc_info=fault)
            return
        file.note()
        self.remade[name] += 1
        log.warning("a socket was gone and has been made anew", extra={"path": str(file.path)})


def _inode(path: Path) -> Inode | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
