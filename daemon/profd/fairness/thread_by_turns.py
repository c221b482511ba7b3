"""A thread for short work that waits for nobody and is done often: users in turn, of one user what was asked first.

Work that is repeated waits here, and not on the event loop, which it would wake twice each time.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final, TypeVar, TypeVarTuple

from profd.fairness.turns import Turns

Answer = TypeVar("Answer")
Given = TypeVarTuple("Given")

TOGETHER_SECONDS: Final = 0.005
"""What is due so much later is done with what is due now: each by itself would wake the thread."""

ROUND_SECONDS: Final = 0.051
"""Work that is repeated is done in rounds so far apart: each by itself would wake the thread, and find nothing of what
it needs in the caches. No round number, so that looks keep step with no program that has one."""

_EARLY_SECONDS: Final = 0.02  # that a round may be too early for work which was late in the last one

log = logging.getLogger(__name__)


class Repetition:
    """Work that is done until `end`. Safe to use from any thread."""

    def __init__(self, uid: int, work: Callable[[], float]) -> None:
        self.uid = uid
        self.work: Callable[[], float] | None = work  # let go of at the end, however late it would have been due

    def end(self) -> None:
        """Not once more; one that has begun goes on. Safe to repeat."""
        self.work = None


class ThreadByTurns:
    """Begins with the first work, and ends with the program. Safe to use from any thread."""

    def __init__(self, name: str, prepare: Callable[[], object] = lambda: None) -> None:
        """`prepare`: done by the thread before any work."""
        self._name = name
        self._prepare = prepare
        self._changed = threading.Condition()
        self._asked: Turns[Callable[[], None]] = Turns()
        self._due: list[tuple[float, int, Repetition]] = []  # a heap: monotonic seconds, a number that tells two apart
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None

    def submit(self, uid: int, work: Callable[[*Given], Answer], *given: *Given) -> Future[Answer]:
        """Have it done when it is this user's turn. One that is cancelled before is left out."""
        future: Future[Answer] = Future()

        def do() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work(*given))
                except BaseException as error:
                    future.set_exception(error)

        with self._changed:
            self._ask(uid, do)
        return future

    def repeat(self, uid: int, work: Callable[[], float]) -> Repetition:
        """Have it done again and again when it is this user's turn; each time says after how many seconds. Work that
        fails, or says `math.inf`, is not done again.
        """
        repetition = Repetition(uid, work)
        with self._changed:
            self._ask(uid, partial(self._once, repetition))
        return repetition

    @property
    def waiting(self) -> int:
        """Work that has not begun."""
        with self._changed:
            return len(self._asked)

    def _ask(self, uid: int, do: Callable[[], None]) -> None:
        self._asked.add(uid, do)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._changed.notify()

    def _once(self, repetition: Repetition) -> None:
        work = repetition.work
        if work is None:
            return
        try:
            seconds = work()
        except Exception:
            log.exception("work of thread %s failed, and is not repeated", self._name)
            return
        if seconds < math.inf:
            with self._changed:
                heapq.heappush(self._due, (_round(time.monotonic(), seconds), next(self._numbers), repetition))

    def _run(self) -> None:
        self._prepare()
        while True:
            self._next()()

    def _next(self) -> Callable[[], None]:
        with self._changed:
            self._ask_what_is_due()
            while (do := self._asked.take()) is None:
                self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                self._ask_what_is_due()
            return do

    def _ask_what_is_due(self) -> None:
        until = time.monotonic() + TOGETHER_SECONDS
        while self._due and self._due[0][0] <= until:
            *_, repetition = heapq.heappop(self._due)
            if repetition.work is not None:
                self._asked.add(repetition.uid, partial(self._once, repetition))


def _round(now: float, seconds: float) -> float:
    """When work is done that is due in so many seconds: in the next round, if it is due later than that at all."""
    if seconds < ROUND_SECONDS:
        return now + seconds
    return math.ceil((now + seconds - _EARLY_SECONDS) / ROUND_SECONDS) * ROUND_SECONDS
