"""The threads behind ingest: two check and write, one brings to the disk.

An ack means written: it survives kill -9 of the daemon. For the loss of power
every file is synced within SYNC_SECONDS of a write, in its own thread, so that
a slow disk delays no ack.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar, cast

from profd.attached.ingest.journal_file import JournalFile
from profd.limits import INGEST_WRITERS

SYNC_SECONDS: Final = 0.1

T = TypeVar("T")
log = logging.getLogger("profd.ingest")


class Writer:
    """Runs what touches chunks and files: a user's calls one after the other, users in turn, a few threads for all.

    So what one user sends is never handled in two threads, and waits for no more of another's than one message.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(INGEST_WRITERS, "profd-ingest")
        self._lock = threading.Lock()
        self._queues: dict[int, deque[tuple[Callable[[], object], Future[object]]]] = {}  # by uid, one that runs first

    async def run(self, uid: int, work: Callable[[], T]) -> T:
        """`work()` in a thread, after everything asked for before for this user; raises what it raises."""
        return cast(T, await asyncio.wrap_future(self._submit(uid, work)))

    def start(self, uid: int, work: Callable[[], object]) -> None:
        """The same without waiting for it; what it raises is logged."""
        self._submit(uid, work).add_done_callback(_log_failure)

    def close(self) -> None:
        """Finish what was asked for and end the threads."""
        self._threads.shutdown(wait=True)

    def _submit(self, uid: int, work: Callable[[], object]) -> Future[object]:
        done: Future[object] = Future()
        with self._lock:
            if uid not in self._queues:
                self._threads.submit(self._serve, uid)
            self._queues.setdefault(uid, deque()).append((work, done))
        return done

    def _serve(self, uid: int) -> None:
        """In a thread: one call of this user's; then it is the others' turn."""
        while True:
            with self._lock:
                work, done = self._queues[uid][0]
            _settle(work, done)
            with self._lock:
                self._queues[uid].popleft()
                if not self._queues[uid]:
                    del self._queues[uid]
                    return
            try:
                self._threads.submit(self._serve, uid)
                return
            except RuntimeError:  # it closes: what was asked for is finished here
                continue


def _settle(work: Callable[[], object], done: Future[object]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:
        done.set_exception(error)
    else:
        done.set_result(result)


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
