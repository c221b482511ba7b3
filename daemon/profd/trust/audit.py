"""The audit log: who started, stopped, deleted, switched off or was denied what.

JSON lines in `audit.jsonl`, appended with one write each (they survive the
death of the daemon) and synced by a thread right after (they survive the
machine's, up to the last moments). Rotated by size; old ones end in .1, .2 …
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from profd.limits import MiB

AUDIT_BYTES_MAX: Final = 16 * MiB
AUDIT_FILES_KEPT: Final = 8
DENIALS_PER_MINUTE_MAX: Final = 60  # of one uid; more are counted, so that nobody can push out what they did before
_DENIERS_MAX: Final = 1024
_LINE_BYTES_MAX: Final = 16_384

log = logging.getLogger("profd.audit")


class AuditLog:
    """Append-only. `write` never raises: what cannot be written goes to the daemon's log."""

    def __init__(
        self,
        path: Path,
        bytes_max: int = AUDIT_BYTES_MAX,
        now_ns: Callable[[], int] = time.time_ns,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._denials = _Denials(clock)
        self.path = path
        self._bytes_max = bytes_max
        self._now_ns = now_ns
        self._lock = threading.Lock()  # callers are the loop and the names thread
        self._fd = self._opened()
        self._dirty = threading.Event()
        self._closing = False
        self._syncer = threading.Thread(target=self._sync, name="profd-audit", daemon=True)
        self._syncer.start()

    def write(self, action: str, uid: int, **details: object) -> None:
        """One line: the time (Unix ns), the action, the uid that asked, and details.

        Denials of one uid above DENIALS_PER_MINUTE_MAX are left out; the next
        one that is written says how many (`left_out`).
        """
        try:
            with self._lock:
                if action == "denied":
                    left_out = self._denials.left_out(uid)
                    if left_out is None:
                        return
                    details = {**details, "left_out": left_out} if left_out else details
                line = self._line(action, uid, details)
                if os.fstat(self._fd).st_size + len(line) > self._bytes_max:
                    self._rotate()
                os.write(self._fd, line)
        except OSError as error:
            log.error("the audit log cannot be written", extra={"why": str(error), "lost": action, "uid": uid})
            return
        self._dirty.set()

    def close(self) -> None:
        """Sync and close."""
        self._closing = True
        self._dirty.set()
        self._syncer.join()
        with self._lock:
            os.close(self._fd)

    def _line(self, action: str, uid: int, details: dict[str, object]) -> bytes:
        entry = {"time_ns": self._now_ns(), "action": action, "uid": uid}
        line = json.dumps({**details, **entry}, default=str).encode()
        if len(line) > _LINE_BYTES_MAX:
            line = json.dumps({**entry, "details": "too long to keep"}).encode()
        return line + b"\n"

    def _opened(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self.path, flags, 0o600)

    def _rotate(self) -> None:
        os.fsync(self._fd)
        for number in range(AUDIT_FILES_KEPT - 1, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number}")
            if older.exists():
                older.replace(self.path.with_name(f"{self.path.name}.{number + 1}"))
        self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        fresh = self._opened()
        os.close(self._fd)
        self._fd = fresh

    def _sync(self) -> None:
        while not self._closing:
            self._dirty.wait()
            self._dirty.clear()
            with self._lock:
                fd = os.dup(self._fd)
            try:
                os.fsync(fd)  # outside the lock: a slow disk must not hold the event loop
            except OSError as error:
                log.error("the audit log cannot be synced", extra={"why": str(error)})
            finally:
                os.close(fd)


class _Denials:
    """How often each uid was denied something in the present minute. Bounded: the oldest uid is forgotten."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[int, tuple[int, int]] = {}  # uid -> (minute, denials in it)

    def left_out(self, uid: int) -> int | None:
        """None if this denial is to be left out, else how many of the uid's last minute were."""
        minute = int(self._clock() // 60)
        before, count = self._seen.pop(uid, (minute, 0))
        missed = max(0, count - DENIALS_PER_MINUTE_MAX) if before != minute else 0
        count = 1 if before != minute else count + 1
        self._seen[uid] = (minute, count)
        if len(self._seen) > _DENIERS_MAX:
            del self._seen[next(iter(self._seen))]
        return None if count > DENIALS_PER_MINUTE_MAX else missed
