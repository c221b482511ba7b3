"""The threads behind ingest: one checks and writes, one brings to the disk.

An ack means written: it survives kill -9 of the daemon. For the loss of power
every file is synced within SYNC_SECONDS of a write, in its own thread, so that
a slow disk delays no ack.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from profd.attached.ingest.journal_file import JournalFile

SYNC_SECONDS: Final = 0.1

T = TypeVar("T")
log = logging.getLogger("profd.ingest")


class Writer:
    """Runs what touches chunks and files, one call after the other, in a thread of its own."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "profd-ingest")

    async def run(self, work: Callable[[], T]) -> T:
        """`work()` in the thread, after everything asked for before; raises what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def start(self, work: Callable[[], object]) -> None:
        """The same without waiting for it; what it raises is logged."""
        self._thread.submit(work).add_done_callback(_log_failure)

    def close(self) -> None:
        """Finish what was asked for and end the thread."""
        self._thread.shutdown(wait=True)


def _log_failure(done: Future[object]) -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        log.error("ingest failed", exc_info=error)


class Syncer:
    """Syncs files some time after they were written."""

    def __init__(self, seconds: float = SYNC_SECONDS) -> None:
        self._seconds = seconds
        self._files: set[JournalFile] = set()
        self._lock = threading.Lock()
        self._written = threading.Event()
        self._closing = threading.Event()
        self.failures = 0  # syncs that the disk refused
        self._thread = threading.Thread(target=self._run, name="profd-ingest-sync", daemon=True)

    def open(self) -> None:
        """Start the thread."""
        self._thread.start()

    def written(self, file: JournalFile) -> None:
        """Sync a file soon. From any thread."""
        with self._lock:
            self._files.add(file)
        self._written.set()

    def close_file(self, file: JournalFile) -> None:
        """Sync a file for the last time and close it, soon; it refuses more at once. From any thread."""
        file.refuse()
        self.written(file)

    def close(self) -> None:
        """Sync what is left and end the thread."""
        self._closing.set()
        self._written.set()
        if self._thread.is_alive():
            self._thread.join()
        self._sync_all()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._written.wait()
            self._closing.wait(self._seconds)  # what is written meanwhile goes along
            self._written.clear()
            self._sync_all()

    def _sync_all(self) -> None:
        with self._lock:
            files, self._files = self._files, set()
        for file in files:
            try:
                file.sync()
            except OSError as error:
                self.failures += 1
                log.error("a journal file could not be synced", extra={"path": str(file.path), "why": str(error)})
            if file.refusing:
                file.close()
