"""One process works on a store at a time: the daemon, or an offline verb."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Final

from profd.disk.files import disk
from profd.errors import InUse, Unavailable

LOCK_FILE: Final = "store.lock"
OFFLINE_WAIT_SECONDS: Final = 10.0  # for another offline verb; a daemon is not waited for
_POLL_SECONDS: Final = 0.02


class StoreLock:
    """An exclusive flock on `store.lock`; the kernel lets go of it when the holder dies."""

    def __init__(self, root: Path, holder: str, wait_seconds: float = 0.0) -> None:
        """Take it as `holder` ("daemon" or "offline"). InUse after the wait, Unavailable for a daemon's."""
        path = root / LOCK_FILE
        with disk(path, "Opening"):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            self._take(root, wait_seconds)
            with disk(path):
                os.ftruncate(self._fd, 0)
                os.pwrite(self._fd, json.dumps({"pid": os.getpid(), "holder": holder}).encode(), 0)
        except BaseException:
            os.close(self._fd)
            raise

    def _take(self, root: Path, wait_seconds: float) -> None:
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder, pid = self._holder()
                if holder == "daemon":
                    raise Unavailable(
                        f"The store {root} belongs to a running profd{pid}: leave out --store and ask the daemon."
                    ) from error
                if time.monotonic() >= deadline:
                    raise InUse(f"The store {root} is in use{pid}: try again when that is done.") from error
                time.sleep(_POLL_SECONDS)
            else:
                return

    def _holder(self) -> tuple[str, str]:
        try:
            found = json.loads(os.pread(self._fd, 256, 0))
            return str(found["holder"]), f" (pid {int(found['pid'])})"
        except (ValueError, KeyError, TypeError):  # just being written
            return "", ""

    def release(self) -> None:
        """Let go; again is no error."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class ReadersLock:
    """Held by what reads a store without its StoreLock: an offline verb. What changes files of a trace waits for it.

    A flock on the directory of all traces. With a StoreLock it is taken, so that no readers come while one waits.
    """

    def __init__(self, traces: Path) -> None:
        """OSError where the directory cannot be opened."""
        self._traces = traces
        self._fd = os.open(traces, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def share(self) -> None:
        """Be one of the readers."""
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def exclude(self, wait_seconds: float) -> None:
        """Be alone. InUse where somebody still reads after the wait."""
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise InUse(
                        f"Somebody reads traces of {self._traces.parent}: try again when that is done."
                    ) from error
                time.sleep(_POLL_SECONDS)
            else:
                return

    def release(self) -> None:
        """Let go; again is no error."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
