"""Questions that the kernel may never answer: asked by a process that is given up when it waits for too long.

While a process is within execve the kernel answers for none of its links and for few of its files, and who asks can be
killed and not interrupted. execve closes files, and so ends when a FUSE or network file system answers. Why so, and
what waits: docs/decisions/0010-processes-that-do-not-answer.md.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from enum import IntEnum
from itertools import islice, takewhile
from pathlib import Path
from typing import Final

from profd import _host
from profd.fairness.rare_line import RareLine
from profd.limits import (
    PROC_LATE_SECONDS,
    PROC_LATE_SECONDS_PER_UID,
    PROC_SIGHT_SECONDS,
    PROC_STARVED_SECONDS,
    PROC_STUCK_MAX,
    PROC_STUCK_SECONDS,
    PROC_WAIT_LOOP_SECONDS,
    PROC_WAIT_SECONDS,
    PROC_WAIT_SECONDS_ALL,
    PROC_WAIT_SECONDS_MIN,
    PROC_WAIT_SECONDS_PER_UID,
)
from profd.model.newest import Newest

log = logging.getLogger(__name__)

_ANSWERED: Final = 0
_NO_CHILD: Final = 2
_REFUSED: Final = 3
_STARVED: Final = 4
# What a look may take, and for how long a child is waited for that asks of several processes: users that answer late
# share theirs with each other.
_TOGETHER: Final = {PROC_LATE_SECONDS: PROC_LATE_SECONDS, PROC_WAIT_LOOP_SECONDS: PROC_WAIT_SECONDS_MIN}
REQUESTS_MAX: Final = 16  # of one child (native/host/guarded.h)


class Operation(IntEnum):
    """The operation on a path (native/host/guarded.h)."""

    READ = 0  # to the end, or so many bytes
    RECORD = 1  # one read
    LINK = 2
    OPEN = 3  # a descriptor; the number is its flags
    LINKS = 4  # of a directory: name NUL target NUL
    CLOCK = 5  # none: CLOCK_REALTIME in ns, 8 bytes
    IN_USE = (
        6  # none: whether anybody has the memory of a pagemap, open at this number, 1 or 0; after 0 all are -ECANCELED
    )


Request = tuple[Operation, str, int]


class Patience:
    """How long is waited for whom. Safe to use from threads.

    A process that has not answered is not asked again for some seconds, unless by a look that may wait for longer: on a
    busy host an answer is late, and a short look must not make a process read as absent to everybody. Within these
    seconds a user's processes are waited for so long together, so that a thousand of them cost no more than a few; who
    has used that up is not asked about. All users together shorten the wait to what a process needs that answers. So
    does a user whose processes answer, but late, for this user's: executing other programs all the time, they would
    keep each look.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since = clock()
        # By pid: until when it does not answer, and what a look might take; and of others, for want of a core.
        self._stuck = Newest[int, tuple[float, float]](PROC_STUCK_MAX)
        self._unheard = Newest[int, float](PROC_STUCK_MAX)
        self._waited: dict[int, float] = {}  # uid -> seconds, in vain
        self._late: dict[int, float] = {}  # uid -> seconds of which the look got an answer
        self._total = 0.0
        self._starved = 0.0  # seconds in vain of children that got no core

    def stuck(self, pid: int) -> bool:
        """It did not answer lately, or could not be asked: it has not ended by that, and may be asked all the same."""
        with self._lock:
            return self._is_stuck(pid) or self._unheard.get(pid, 0.0) > self._clock()

    def spent(self, uid: int) -> bool:
        """Nobody waits for a process of this user now: others of theirs did not answer for too long."""
        with self._lock:
            self._turn()
            return self._waited.get(uid, 0.0) >= PROC_WAIT_SECONDS_PER_UID

    def silent(self) -> list[int]:
        """The processes that did not answer lately."""
        return [pid for pid in list({**self._stuck, **self._unheard}) if self.stuck(pid)]

    def allowed(self, pid: int, uid: int, most: float, *, patient: bool = False) -> float:
        """For how many seconds a look that may take `most` waits for it; 0: not at all. `patient`: however late others
        of its user have answered.
        """
        with self._lock:
            self._turn()
            if self._is_stuck(pid, most):
                return 0.0
            left = PROC_WAIT_SECONDS_PER_UID - self._waited.get(uid, 0.0)
            if left <= 0:
                return 0.0
            if not patient and self._late.get(uid, 0.0) >= PROC_LATE_SECONDS_PER_UID:
                return PROC_LATE_SECONDS
            if self._total >= PROC_WAIT_SECONDS_ALL:
                return PROC_WAIT_SECONDS_MIN
            return min(most, max(left, PROC_WAIT_SECONDS_MIN))

    def waited(self, pid: int, uid: int, seconds: float, most: float) -> None:
        """In vain, by a look that might take `most`."""
        with self._lock:
            self._turn()
            if self._is_stuck(pid):
                most = max(most, self._stuck[pid][1])
            self._stuck[pid] = (self._clock() + PROC_STUCK_SECONDS, most)
            _add(self._waited, uid, seconds)
            self._total += seconds

    def late(self, uid: int, seconds: float) -> None:
        """An answer of one of this user's processes took so long, which it waited for and for no core."""
        with self._lock:
            self._turn()
            _add(self._late, uid, seconds)

    def starved(self, pid: int, uid: int, seconds: float, most: float) -> None:
        """In vain, as `waited`, by a child that got no core."""
        with self._lock:
            self._turn()
            self._starved += seconds
            if self._starved <= PROC_STARVED_SECONDS:
                self._total += seconds
                self._unheard[pid] = self._clock() + PROC_STUCK_SECONDS
                return
        self.waited(pid, uid, seconds, most)

    def spend(self, uid: int) -> None:
        """Have nobody wait for this user's processes any more, for now."""
        with self._lock:
            self._turn()
            if uid in self._waited or len(self._waited) < PROC_STUCK_MAX:
                self._waited[uid] = PROC_WAIT_SECONDS_PER_UID

    def answered(self, pid: int) -> None:
        """It does now."""
        if pid in self._stuck or pid in self._unheard:  # seldom
            with self._lock:
                self._stuck.pop(pid, None)
                self._unheard.pop(pid, None)

    def _is_stuck(self, pid: int, most: float = 0.0) -> bool:
        until, tried = self._stuck.get(pid, (0.0, 0.0))
        return until > self._clock() and most <= tried

    def _turn(self) -> None:
        now = self._clock()
        if now - self._since >= PROC_STUCK_SECONDS:
            self._since, self._total, self._starved = now, 0.0, 0.0
            self._waited.clear()
            # A user with much of it is not waited for anew at once.
            self._late = {
                uid: left for uid, seconds in self._late.items() if (left := seconds / 2) >= PROC_LATE_SECONDS
            }


def _add(users: dict[int, float], uid: int, seconds: float) -> None:
    if uid in users or len(users) < PROC_STUCK_MAX:
        users[uid] = users.get(uid, 0.0) + seconds


patience: Final = Patience()


class Sight:
    """Whether processes can be looked into at all: none can while the host or the unit has no task left for a child.

    Without this a process that cannot be asked would read as one that is not there. Safe to use from threads.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lost = (0.0, "")  # until when, unless a look tells better; and why

    def lost(self, why: str) -> None:
        """No child could be made."""
        self._lost = (self._clock() + PROC_SIGHT_SECONDS, why)
        _unable.tell(why=why)

    def regained(self) -> None:
        """One could."""
        if self._lost[1]:
            self._lost = (0.0, "")

    @property
    def why_not(self) -> str:
        """A sentence where the last look could not be made, else empty."""
        until, why = self._lost
        if self._clock() >= until:
            return ""
        return (
            f"profd cannot look into processes now: no child process can be made for it ({why}). Too many tasks run on "
            "the host or in profd's unit (TasksMax; systemctl status profd counts them); try again in some seconds."
        )


_unable: Final = RareLine(log, "no process can be made to look into others", level=logging.ERROR)
_used_up: Final = RareLine(log, "a user's processes are not looked at: too many that asked of them wait for ever")
sight: Final = Sight()


def ask(pid: int, requests: Sequence[Request], *, noted: bool = True) -> list[bytes | int]:
    """An answer for each: what was read, a descriptor, or -errno; -EINPROGRESS where the process did not answer.

    `noted`: that it did not is known to all who ask next. Not where a look is one of many that may be missed: on a busy
    host the child's turn may come too late.
    """
    answers, answered = _asked(pid, requests, noted)
    if not answered:
        _thread.missed = missed() + 1
    return answers


def missed() -> int:
    """How often this thread has asked in vain. A process that missed a question may have answered the next one, and
    then `unanswering` does not tell that the first is open.
    """
    found: int = getattr(_thread, "missed", 0)
    return found


def _asked(pid: int, requests: Sequence[Request], noted: bool) -> tuple[list[bytes | int], bool]:
    """The answers, and whether these are of the process."""
    uid, most = user_of(pid), PROC_WAIT_LOOP_SECONDS if _others_do() else PROC_WAIT_SECONDS
    seconds = patience.allowed(pid, uid, most, patient=getattr(_thread, "patient", False))
    if not seconds:
        return [-errno.EINPROGRESS] * len(requests), False
    began = time.monotonic()
    asked = [(int(kind), path, limit) for kind, path, limit in requests]
    outcome, answers, kept, _ = _host.ask(asked, seconds, [max(uid, 0)] * len(asked))
    if outcome == _REFUSED:
        patience.spend(uid)
        _used_up.tell(uid=uid)
        return [-errno.EINPROGRESS] * len(requests), False
    if outcome == _NO_CHILD:
        sight.lost(_why(answers))
        return answers or [-errno.EINPROGRESS] * len(requests), False
    sight.regained()
    if outcome == _ANSWERED:
        patience.answered(pid)
        if kept:
            patience.late(uid, kept)
    elif noted:
        waits = patience.starved if outcome == _STARVED else patience.waited
        waits(pid, uid, time.monotonic() - began, most)
    return answers or [-errno.EINPROGRESS] * len(requests), outcome == _ANSWERED


def ask_each(wanted: Sequence[tuple[int, Sequence[Request]]]) -> list[list[bytes | int]]:
    """As `ask` for each of several processes, in its order; those that answer share a child.

    One that may not answer is asked alone: how long it is waited for is its user's matter, and nobody else's.
    """
    answers: list[list[bytes | int]] = []
    while len(answers) < len(wanted):
        answers += _answered_together(wanted[len(answers) :])
        if len(answers) < len(wanted):
            answers.append(ask(*wanted[len(answers)]))
    return answers


def _answered_together(wanted: Sequence[tuple[int, Sequence[Request]]]) -> list[list[bytes | int]]:
    """The answers of the first of these, up to one that does not answer at once, or did not lately."""
    group: list[Sequence[Request]] = []
    owners: list[int] = []
    seconds = PROC_WAIT_SECONDS_MIN
    for pid, requests in wanted:
        uid = user_of(pid)
        allowed = patience.allowed(pid, uid, PROC_WAIT_LOOP_SECONDS)
        if len(owners) + len(requests) > REQUESTS_MAX or allowed not in _TOGETHER:
            break
        if group and _TOGETHER[allowed] != seconds:
            break
        seconds = _TOGETHER[allowed]
        group.append(requests)
        owners += [max(uid, 0)] * len(requests)
    if len(group) < 2:
        return []
    asked = [(int(kind), path, limit) for requests in group for kind, path, limit in requests]
    _, said, kept, longest = _host.ask(asked, seconds, owners)
    if kept:
        patience.late(owners[longest], kept)
    left = iter(said)
    answers = [list(islice(left, len(requests))) for requests in group]
    whole = list(takewhile(_are_whole, answers))
    for pid, _ in wanted[: len(whole)]:
        patience.answered(pid)
    return whole


def _are_whole(answers: list[bytes | int]) -> bool:
    return bool(answers) and -errno.EINPROGRESS not in answers


def unanswering(pid: int) -> bool:
    """It did not answer lately, or is not asked now because others of its user did not."""
    if patience.stuck(pid):
        return True
    uid = user_of(pid)
    return uid >= 0 and patience.spent(uid)


def silent_of(uids: Collection[int] | None) -> int:
    """The number of processes of these users (None: of anybody) that did not answer lately and are still there."""
    owners = [owner for pid in patience.silent() if (owner := user_of(pid)) >= 0]
    return sum(uids is None or owner in uids for owner in owners)


def user_of(pid: int, root: Path | str = "/proc") -> int:
    """The uid that a process acts as, dumpable or not; -1 where there is no such process. Never waits."""
    try:
        return os.stat(f"{root}/{pid}").st_uid
    except OSError:
        return -1


def others_wait() -> None:
    """Others wait for this thread, whatever process it asks: it waits as an event loop does."""
    _thread.others_wait = True


def waits_patiently() -> None:
    """Let this thread, which serves users in turn, ask as long as ever, whatever others of a user cost lists."""
    _thread.patient = True


_thread: Final = threading.local()


def _others_do() -> bool:
    return asyncio._get_running_loop() is not None or getattr(_thread, "others_wait", False)


def _why(answers: Sequence[bytes | int]) -> str:
    return os.strerror(-answers[0]) if answers and isinstance(answers[0], int) else "too many of them wait for ever"
