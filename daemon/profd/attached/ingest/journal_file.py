"""The append-only file of one target's chunks: what is in it survives kill -9, a torn tail is cut.

Chunks lie in it one after the other, as they were sent. A write that fails
half-way (a full disk) is taken back, so the file always ends with a whole
chunk, whoever looks. Some times as much as is in it is kept free for the trace
that it becomes: a file that ends because the disk runs short can still be stored.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from profd.attached.ingest.chunk import Chunk, split_untrusted
from profd.disk.files import disk
from profd.disk.space import Claim, alone
from profd.errors import Exhausted
from profd.limits import INGEST_CHUNK_BYTES_MAX, INGEST_JOURNAL_BYTES_MAX, INGEST_TRACE_FACTOR

_WINDOW_BYTES: Final = 8 * INGEST_CHUNK_BYTES_MAX  # read at a time when a file is recovered

log = logging.getLogger("profd.ingest")


class JournalFull(Exception):
    """Nothing more can be written; str() is a sentence for the user."""


class JournalFile:
    """One file. `append`, `sync` and `close` may be called by different threads; close is for good."""

    def __init__(
        self,
        path: Path,
        bytes_max: int = INGEST_JOURNAL_BYTES_MAX,
        claim: Claim | None = None,
        fd: int | None = None,
    ) -> None:
        """Open or make it, mode 0600, or take an open descriptor over. Raises Exhausted when the disk refuses.

        `claim` becomes its own; without one nobody else writes to that filesystem.
        """
        self.path = path
        self._bytes_max = bytes_max
        self._claim = claim or alone()
        self._lock = threading.Lock()
        self._look_again_at = 0  # bytes at which room is asked for again
        with disk(path, "Opening"):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(path, flags, 0o600) if fd is None else fd
            self.bytes = os.fstat(self._fd).st_size
        self.dirty = False  # written since the last sync
        self.refusing = False

    def recover(self, known: Callable[[Chunk], bool]) -> int:
        """Pass every whole chunk to `known` and cut the file before the first that is broken or that it denies.

        The bytes that were cut. Raises OSError.
        """
        if not self.bytes:
            return 0
        good = 0
        for chunk in _chunks(self._fd, self.bytes):
            if chunk.refusal is not None or not known(chunk):
                break
            good = chunk.end
        cut = self.bytes - good
        if cut:
            log.warning("a torn tail is cut", extra={"path": str(self.path), "bytes": cut, "kept": good})
            os.ftruncate(self._fd, good)
        self.bytes = good
        return cut

    def append(self, data: memoryview) -> None:
        """Write whole chunks at the end. Raises JournalFull; nothing of `data` is in the file then."""
        with self._lock:
            if self._fd < 0 or self.refusing:
                raise JournalFull(f"{self.path} is closed")
            self._check_room(len(data))
            try:
                self._write(data)
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, self.bytes)
                raise JournalFull(f"{self.path} cannot be written: {error.strerror}") from error
            self.bytes += len(data)
            self.dirty = True

    def refuse(self) -> None:
        """Take nothing more. Does not wait for a write that runs: a disk may hold it for long."""
        self.refusing = True
        self._claim.close()  # its trace needs the room now

    def sync(self) -> None:
        """Fdatasync what has been written since the last time. Safe when closed. Raises OSError."""
        with self._lock:
            if self._fd < 0 or not self.dirty:
                return
            self.dirty = False
            fd = os.dup(self._fd)  # a slow disk is not to hold the writer
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Nothing is written any more. Safe to repeat; waits for a write that runs."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
        self._claim.close()

    def _check_room(self, more: int) -> None:
        if self.bytes + more > self._bytes_max:
            raise JournalFull(f"{self.path} has reached its limit of {self._bytes_max} bytes")
        if self.bytes + more > self._look_again_at:
            least = more + INGEST_TRACE_FACTOR * (self.bytes + more)
            try:
                kept = self._claim.hold(self.bytes, least)
            except Exhausted as error:
                raise JournalFull(str(error)) from error
            self._look_again_at = self.bytes + more + (kept - least) // (1 + INGEST_TRACE_FACTOR)

    def _write(self, data: memoryview) -> None:
        at = self.bytes
        while len(data):
            written = os.pwrite(self._fd, data, at)
            at += written
            data = data[written:]


def _chunks(fd: int, size: int) -> Iterator[Chunk]:
    """The chunks of a file, with their places in it."""
    at = 0
    while at < size:
        window = os.pread(fd, _WINDOW_BYTES, at)
        if not window:
            return
        begin = at
        for chunk in split_untrusted(memoryview(window)):
            cut_by_window = chunk.refusal is not None and chunk.start > 0 and begin + len(window) < size
            if cut_by_window:
                break
            at = begin + chunk.end
            yield replace(chunk, start=begin + chunk.start, end=at)
