"""Descriptors whose close frees much: the last one of memory that a target has filled, or of a file without a name.

A GiB of memory takes 0.3 s, one of a file waits for its disk. How much it is, and that ours is the last, is somebody
else's doing. So the event loop closes what is small, and of the rest only what is surely not the last.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from profd.limits import FREED_AT_ONCE_BYTES

_Inode = tuple[int, int]
_BLOCK_BYTES: Final = 512  # of st_blocks


class Freeing:
    """A thread that closes. It holds a descriptor of each file that waits, so that further ones are not the last."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: set[_Inode] = set()
        self._queue: SimpleQueue[tuple[_Inode, int]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def close(self, fd: int) -> None:
        """Close it, now or soon. Waits for nothing, in any thread."""
        found = os.fstat(fd)
        inode = found.st_dev, found.st_ino
        with self._lock:
            if found.st_blocks * _BLOCK_BYTES <= FREED_AT_ONCE_BYTES or inode in self._waiting:
                os.close(fd)
                return
            self._waiting.add(inode)
            self._queue.put((inode, fd))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            inode, fd = self._queue.get()
            with self._lock:
                self._waiting.discard(inode)
            os.close(fd)  # the interpreter goes on meanwhile


_memory: Final = Freeing("profd-memory")
_files: Final = Freeing("profd-files")  # a disk that does not answer is not to hold up the other


def let_go(fd: int) -> None:
    """Close a memfd: one that a target has passed sealed, or a large one of ours, or a copy."""
    _memory.close(fd)


class Spool(io.BufferedRandom):
    """A file without a name. It may be large: its close frees it in a thread."""

    def __init__(self, directory: Path) -> None:
        """OSError where it cannot be made."""
        super().__init__(tempfile.TemporaryFile(dir=directory, buffering=0))  # noqa: SIM115 - closed with this

    def close(self) -> None:
        """Safe to repeat."""
        kept = -1
        with contextlib.suppress(OSError, ValueError):  # no descriptor is left; it is closed
            kept = os.dup(self.fileno())
        try:
            super().close()
        finally:
            if kept >= 0:
                _files.close(kept)
