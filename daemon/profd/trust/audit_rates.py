"""How many lines of the audit log each uid may have in an interval; what is more is counted, never forgotten.

Denials and reads of what belongs to others have allowances of their own: who may
do something ten thousand times cannot hide what they were not to do behind it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from profd.limits import (
    AUDIT_DENIALS_MAX,
    AUDIT_INTERVAL_SECONDS,
    AUDIT_LINES_MAX,
    AUDIT_MET_MAX,
    AUDIT_READS_MAX,
    AUDIT_SUBJECTS_MAX,
    AUDIT_UIDS_MAX,
)

OTHERS: Final = -2  # the uid of those after AUDIT_UIDS_MAX; -1 is who could not be identified


class LineKind(Enum):
    """What a line is about; each has an allowance of its own."""

    ORDINARY = "ordinary"
    DENIED = "denied"
    READ = "read"  # of what belongs to somebody else


_ALLOWED: Final = {
    LineKind.ORDINARY: AUDIT_LINES_MAX,
    LineKind.DENIED: AUDIT_DENIALS_MAX,
    LineKind.READ: AUDIT_READS_MAX,
}


@dataclass(slots=True)
class Summary:
    """What one uid did without a line for each."""

    uid: int
    from_ns: int
    counted: Counter[tuple[str, str]] = field(default_factory=Counter)  # by action and what it was done to

    def add(self, action: str, subject: str, times: int = 1) -> None:
        """The first AUDIT_SUBJECTS_MAX subjects are named; of others only the action is."""
        named = sum(bool(name) for _, name in self.counted)
        if (action, subject) not in self.counted and named >= AUDIT_SUBJECTS_MAX:
            subject = ""
        self.counted[action, subject] += times

    def counts(self) -> dict[str, int]:
        """As the log shows it: `{"trace.sql 06v2k9x4h8t1z": 3}`."""
        return {f"{action} {subject}".rstrip(): times for (action, subject), times in self.counted.items()}


class AuditRates:
    """One interval after the other, each beginning with the first line in it. Not thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._now_ns = now_ns
        self._ends: float | None = None
        self._from_ns = 0
        self._written: dict[int, Counter[LineKind]] = {}
        self._summaries: dict[int, Summary] = {}
        self._met: set[tuple[int, str, str]] = set()

    def take(self, uid: int, kind: LineKind) -> bool:
        """Whether this uid may have one more line of this kind."""
        self._begin()
        written = self._written.setdefault(self._known(uid), Counter())
        written[kind] += 1
        return written[kind] <= _ALLOWED[kind]

    def first(self, uid: int, action: str, subject: str) -> bool:
        """Whether this is new in this interval; AUDIT_MET_MAX are remembered, and what is not is new again."""
        self._begin()
        if (uid, action, subject) in self._met:
            return False
        if len(self._met) < AUDIT_MET_MAX:
            self._met.add((uid, action, subject))
        return True

    def count(self, uid: int, action: str, subject: str = "") -> bool:
        """For the summary; whether it is the first of this interval."""
        first = not self._summaries
        self._summary(uid).add(action, subject)
        return first

    def seconds_left(self) -> float | None:
        """Until a summary is due; None where there is none to be written."""
        return max(0.0, self._ends - self._clock()) if self._ends is not None and self._summaries else None

    def ended(self) -> list[Summary]:
        """The summaries of the interval, if it has ended: they are the caller's to write down."""
        return self.end() if self._ends is not None and self._clock() >= self._ends else []

    def end(self) -> list[Summary]:
        """The same, now."""
        found = list(self._summaries.values())
        self._ends = None
        self._written, self._summaries = {}, {}
        self._met = set()
        return found

    def give_back(self, summary: Summary) -> None:
        """One that could not be written becomes part of the next."""
        found = self._summary(summary.uid)
        found.from_ns = min(found.from_ns, summary.from_ns)
        for (action, subject), times in summary.counted.items():
            found.add(action, subject, times)

    def _summary(self, uid: int) -> Summary:
        self._begin()
        uid = self._known(uid)
        self._written.setdefault(uid, Counter())
        return self._summaries.setdefault(uid, Summary(uid, self._from_ns))

    def _begin(self) -> None:
        if self._ends is None:
            self._ends, self._from_ns = self._clock() + AUDIT_INTERVAL_SECONDS, self._now_ns()

    def _known(self, uid: int) -> int:
        return uid if uid in self._written or len(self._written) < AUDIT_UIDS_MAX else OTHERS
