"""The audit log: who started, stopped, deleted, read, switched off or was denied what.

JSON lines in `audit.jsonl`, appended with one write each (they survive the
death of the daemon) and synced by a thread right after (they survive the
machine's, up to the last moments). What a uid does beyond its allowance is
counted and summed up in one line an interval; root and admins have no limit.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profd.fairness.rare_line import RareLine
from profd.limits import AUDIT_FILE_BYTES_MAX, AUDIT_INTERVAL_SECONDS, AUDIT_KEPT_BYTES_MAX
from profd.trust import caller as callers
from profd.trust.audit_copy import Copier
from profd.trust.audit_files import AuditFiles
from profd.trust.audit_line import line
from profd.trust.audit_rates import AuditRates, LineKind, Summary

log = logging.getLogger("profd.audit")

COUNTED: Final = "audit.counted"  # the action of summaries


@dataclass(frozen=True, slots=True)
class AuditStatistics:
    """Since the start."""

    written: int = 0  # lines, summaries among them
    counted: int = 0  # in summaries, written or to come
    failed: int = 0  # the same, because the disk did not take their lines
    copies_sent: int = 0
    copies_dropped: int = 0


class AuditLog:
    """Append-only. Nothing here raises: what cannot be written is counted, and goes to the daemon's log."""

    def __init__(
        self,
        path: Path,
        bytes_max: int = AUDIT_FILE_BYTES_MAX,
        kept_bytes_max: int = AUDIT_KEPT_BYTES_MAX,
        now_ns: Callable[[], int] = time.time_ns,
        clock: Callable[[], float] = time.monotonic,
        copier: Copier | None = None,
    ) -> None:
        self.path = path
        self._now_ns = now_ns
        self._clock = clock
        self._sift_at = clock()
        self._rates = AuditRates(clock, now_ns)
        self._finished: list[Summary] = []  # that the thread is to write
        self._copier = copier
        self._copied = (0, 0)  # sent and dropped by those before it that have ended
        self._ending: list[Copier] = []
        self._written = self._counted = self._failed = 0
        self._unwritable, self._unsyncable, self._unsiftable = (
            RareLine(log, f"the audit log{what}", level=logging.ERROR, clock=clock)
            for what in (
                " cannot be written; what is left out is counted",
                " cannot be synced",
                "'s old lines cannot be sifted; it grows until they can",
            )
        )
        self._lock = threading.Lock()  # callers are the loop and the names thread
        self._files = AuditFiles(path, bytes_max, kept_bytes_max)
        self._wake = threading.Event()
        self._closing = False
        self._keeper = threading.Thread(target=self._keep, name="profd-audit", daemon=True)
        self._keeper.start()

    def write(self, action: str, uid: int, **details: object) -> None:
        """One line: the time (Unix ns), the action, the uid that asked, and details; or it is counted."""
        kind = LineKind.DENIED if action.endswith("denied") else LineKind.ORDINARY
        self._record(kind, action, uid, str(details.get("method", "")), details)

    def read(self, action: str, uid: int, owner: int, *, again: bool = False, **what: object) -> None:
        """Somebody looks at a trace or a process: a line if it is another's, else it is counted.

        `again`: as one does many times while one moves about: only the first of an interval has a line.
        """
        subject = " ".join(str(value) for value in what.values())
        if uid == owner:
            with self._lock:
                self._count(action, uid, "")
        elif again and not self._is_first(uid, action, subject):
            with self._lock:
                self._count(action, uid, subject)
        else:
            self._record(LineKind.READ, action, uid, subject, {**what, "owner": owner})

    def statistics(self) -> AuditStatistics:
        """What became of everything."""
        sent, dropped = self._copies()
        return AuditStatistics(self._written, self._counted - self._failed, self._failed, sent, dropped)

    def copy_to(self, copier: Copier | None) -> None:
        """Lines are copied there from now on; what waits for the one before is still sent."""
        with self._lock:
            before, self._copier = self._copier, copier
            if before is None:
                return
            self._ending.append(before)
        # It has seconds for what waits.
        threading.Thread(target=self._end_copies, args=(before,), name="profd-audit-copy-end", daemon=True).start()

    def _end_copies(self, copier: Copier) -> None:
        copier.close()
        with self._lock:
            self._ending.remove(copier)
            self._copied = self._copied[0] + copier.sent, self._copied[1] + copier.dropped

    def _copies(self) -> tuple[int, int]:
        """Sent and dropped."""
        with self._lock:
            copiers = [*self._ending, *([self._copier] if self._copier is not None else [])]
            sent, dropped = self._copied
        return sent + sum(of.sent for of in copiers), dropped + sum(of.dropped for of in copiers)

    def close(self) -> None:
        """Write what was counted, sync and close."""
        self._closing = True
        self._wake.set()
        self._keeper.join()
        with self._lock:
            self._files.close()
            for summary in self._rates.end():
                log.error("never written to the audit log", extra={"uid": summary.uid, "counts": summary.counts()})
        if self._copier is not None:
            self._copier.close()

    def _record(self, kind: LineKind, action: str, uid: int, subject: str, details: dict[str, object]) -> None:
        admin = _is_admin(uid)
        with self._lock:
            self._turn()
            if not (admin or self._rates.take(uid, kind)):
                self._count(action, uid, subject)
                return
            facts = {"time_ns": self._now_ns(), "action": action, "uid": uid, **({"admin": True} if admin else {})}
            text = line(facts, details)
            self._copy(text, action, uid, urgent=admin or kind is LineKind.DENIED)
            if not self._append(text):
                self._failed += 1
                self._count(action, uid, subject)
        self._wake.set()

    def _is_first(self, uid: int, action: str, subject: str) -> bool:
        with self._lock:
            self._turn()
            return self._rates.first(uid, action, subject)

    def _count(self, action: str, uid: int, subject: str) -> None:
        self._turn()
        self._counted += 1
        if self._rates.count(uid, action, subject):
            self._wake.set()  # the thread is to wait for the end of the interval from now on

    def _turn(self) -> None:
        """An interval that has ended: its summaries are the thread's work, and no caller's."""
        self._finished += self._rates.ended()

    def _copy(self, text: bytes, action: str, uid: int, *, urgent: bool) -> None:
        if self._copier is not None:
            self._copier.send(text, action, uid, urgent=urgent)

    def _append(self, text: bytes) -> bool:
        try:
            self._files.append(text)
        except OSError as error:
            self._unwritable.tell(why=str(error))
            return False
        self._unwritable.over()
        self._written += 1
        return True

    # --- in the thread ---

    def _keep(self) -> None:
        while not self._closing:
            with self._lock:
                seconds = self._rates.seconds_left()
            self._wake.wait(seconds)
            self._wake.clear()
            self._tend()
        self._tend()

    def _tend(self) -> None:
        self._sum_up()
        self._sync()
        self._sift()

    def _sum_up(self) -> None:
        with self._lock:
            self._finished += self._rates.end() if self._closing else self._rates.ended()
            summaries, self._finished = self._finished, []
        for summary in summaries:
            with self._lock:  # for each: callers are not to wait for all
                self._write_summary(summary)

    def _write_summary(self, summary: Summary) -> None:
        now_ns = self._now_ns()
        facts = {"time_ns": now_ns, "action": COUNTED, "uid": summary.uid}
        facts |= {"from_ns": summary.from_ns, "to_ns": now_ns, "counts": summary.counts()}
        text = line(facts, {})
        if self._append(text):
            self._copy(text, COUNTED, summary.uid, urgent=True)
        else:
            self._rates.give_back(summary)

    def _sync(self) -> None:
        """Outside the lock: a slow disk must not hold the event loop."""
        with self._lock:
            unsynced = self._files.unsynced()
        for fd in unsynced:
            try:
                os.fsync(fd)
                self._unsyncable.over()
            except OSError as error:
                self._unsyncable.tell(why=str(error))
            finally:
                os.close(fd)

    def _sift(self) -> None:
        if self._clock() < self._sift_at:
            return
        try:
            self._files.sift()
            self._unsiftable.over()
        except OSError as error:
            self._sift_at = self._clock() + AUDIT_INTERVAL_SECONDS
            self._unsiftable.tell(why=str(error))


def _is_admin(uid: int) -> bool:
    """Root, and who acts now as an admin: a capture that an admin began ends in the same context."""
    if uid == 0:
        return True
    with contextlib.suppress(LookupError):
        caller = callers.current()
        return caller.admin and caller.uid == uid
    return False
