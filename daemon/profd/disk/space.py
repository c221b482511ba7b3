"""How much each user may still write on the filesystem of the store.

A ledger of what is being written there and of what has been promised: everything whose size a user has a say in
(imports, pushed streams, journals of captures, files picked up from targets, what workers write) has a claim, asks
before it writes, and says what it has written. So no two writers are promised the same bytes, nobody fills the disk,
and no user holds more than a share of it. What lies in the store is the store's quota's affair, not this one's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

from profd.disk.amounts import amount
from profd.disk.files import disk
from profd.errors import DiskFull, Exhausted
from profd.limits import DISK_FREE_BYTES_MIN, DISK_FREE_SHARE_MIN, DISK_STEP_BYTES, DISK_UID_SHARE

_STEPS: Final = 64


class Urgency(IntEnum):
    """How far down the free space a writer may go."""

    NEW = 0  # what can as well be done later leaves DISK_FREE_SHARE_MIN
    RECORDING = 1  # captures that run, DISK_FREE_BYTES_MIN
    STORING = 2  # what they have recorded, half of that: so they can still end with what they have


Measure = Callable[[], tuple[int, int]]  # free bytes for ordinary users, bytes in all


class Claim:
    """What one writer has written and may write. Close it when its files are gone, or somebody else's."""

    def __init__(self, space: Space, uid: int, what: str, urgency: Urgency) -> None:
        self.uid = uid
        self.what = what
        self.urgency = urgency
        self.written = 0
        self.ahead = 0
        self.closed = False
        self._space = space

    def hold(self, written: int, least: int, most: int | None = None) -> int:
        """So much is written, and at least `least` bytes more are wanted; how many are promised.

        `most` of them if there are as many, or a step beyond the least, so that not each write asks. Raises
        DiskFull, or Exhausted above the share of one user; what was promised before holds no longer then.
        """
        return self._space.settle(self, written, least, most)

    def wrote(self, written: int) -> None:
        """So much is written, and no more is wanted."""
        self._space.note(self, written)

    def close(self) -> None:
        """Give back what was promised. Safe to repeat."""
        self._space.forget(self)

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class SpaceStatistics:
    """Bytes of the filesystem."""

    free: int  # for ordinary users
    size: int
    reserve: int  # below it nothing new is begun
    promised: int  # to those who write now, and not written yet


class Space:
    """All claims on one filesystem. From any thread; nothing blocks but a statvfs."""

    def __init__(
        self,
        directory: Path,
        free_share_min: float = DISK_FREE_SHARE_MIN,
        uid_share: float = DISK_UID_SHARE,
        measure: Measure | None = None,
    ) -> None:
        self._directory = directory
        self._free_share_min = free_share_min
        self._uid_share = uid_share
        self._measure = measure or self._statvfs
        self._claims: set[Claim] = set()
        self._lock = threading.Lock()

    def claim(self, uid: int, what: str, urgency: Urgency = Urgency.NEW) -> Claim:
        """A claim of nothing yet. `what` is named in refusals."""
        return Claim(self, uid, what, urgency)

    def left(self, urgency: Urgency = Urgency.NEW) -> int:
        """Bytes that nobody has been promised; negative below what is to stay free."""
        with self._lock:
            return self._left(urgency, None)

    def statistics(self) -> SpaceStatistics:
        """Of now. Raises Exhausted where the disk does not answer."""
        free, size = self._measure()
        with self._lock:
            promised = sum(claim.ahead for claim in self._claims)
        return SpaceStatistics(free, size, int(size * self._free_share_min), promised)

    def settle(self, claim: Claim, written: int, least: int, most: int | None) -> int:
        """See Claim.hold."""
        with self._lock:
            self._set(claim, written)
            left = self._left(claim.urgency, claim)
            if least > left:
                raise DiskFull(
                    f"{claim.what} needs {amount(least)} more on the filesystem of {self._directory}, where "
                    f"{amount(max(0, left))} may be written: free space (`profctl list`, `profctl rm`), then try again"
                )
            theirs = sum(other.written + other.ahead for other in self._claims if other.uid == claim.uid)
            share = int(self._uid_share * (left + self._being_written()))
            if claim.urgency is Urgency.STORING:  # it was within their share when it was recorded
                share = theirs + left
            if theirs + least > share:
                raise Exhausted(
                    f"{claim.what} needs {amount(least)} more, and your unfinished imports and captures hold "
                    f"{amount(theirs)} of the {amount(share)} that one user may hold on the filesystem of "
                    f"{self._directory}: wait for them to end"
                )
            if most is None:  # of a small disk a small step: what one has and does not use others lack
                most = least + min(DISK_STEP_BYTES, left // _STEPS)
            claim.ahead = max(least, min(most, left, share - theirs))
            return claim.ahead

    def note(self, claim: Claim, written: int) -> None:
        """See Claim.wrote."""
        with self._lock:
            self._set(claim, written)

    def forget(self, claim: Claim) -> None:
        """See Claim.close."""
        with self._lock:
            claim.closed = True
            self._claims.discard(claim)

    def _set(self, claim: Claim, written: int) -> None:
        claim.written, claim.ahead = written, 0
        if not claim.closed:  # a thread may ask on for a caller that has gone
            self._claims.add(claim)

    def _being_written(self) -> int:
        return sum(claim.written + claim.ahead for claim in self._claims)

    def _left(self, urgency: Urgency, claim: Claim | None) -> int:
        free, size = self._measure()
        floor = int(size * self._free_share_min)
        if urgency is not Urgency.NEW:
            floor = min(floor, DISK_FREE_BYTES_MIN) // urgency
        return free - floor - sum(other.ahead for other in self._claims if other is not claim)

    def _statvfs(self) -> tuple[int, int]:
        with disk(self._directory, "Reading"):
            found = os.statvfs(self._directory)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize


def alone(what: str = "the file") -> Claim:
    """Of a writer that shares its disk with nobody and asks nobody: the disk itself says when it is full."""
    return Space(Path("/"), uid_share=1.0, measure=lambda: (1 << 62, 0)).claim(os.geteuid(), what)
