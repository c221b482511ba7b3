"""A line of the log that somebody can cause again and again: some are told, the rest is counted."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from profd.fairness.rates import Rate, Rates
from profd.fairness.shares import Holder, Refused
from profd.limits import RARE_LINE_SECONDS

NOBODY = Holder(-1, reserved=False)  # what no user causes, or one whom nobody knows


class RareLine:
    """One sentence. `burst` of them come at once, of each user; then one in RARE_LINE_SECONDS. Safe in any thread.

    Lines that were not written are `untold` in the next one that is, whatever causes it.
    """

    def __init__(
        self,
        log: logging.Logger,
        what: str,
        *,
        level: int = logging.WARNING,
        burst: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._what = what
        self._level = level
        self._clock = clock
        self._rates = Rates(Rate("log_lines", "lines of the log", 1 / RARE_LINE_SECONDS, burst), clock)
        self._lock = threading.Lock()
        self._untold = 0
        self._told: float | None = None  # when, until it is over

    def tell(self, uid: int | None = None, error: BaseException | None = None, **said: object) -> None:
        """It happened, because of this user. `error` is told with its traceback."""
        with self._lock:
            try:
                self._rates.take(NOBODY if uid is None else Holder(uid, reserved=False))
            except Refused:
                self._untold += 1
                return
            untold, self._untold = self._untold, 0
            self._told = self._clock()
        said |= {} if uid is None else {"uid": uid}
        said |= {"untold": untold} if untold else {}
        self._log.log(self._level, self._what, extra=said, exc_info=error)

    def over(self) -> None:
        """It did not happen this time. Told once, when the last line is RARE_LINE_SECONDS old."""
        if self._told is None:  # without the lock: this is asked all the time
            return
        with self._lock:
            if self._told is None or self._clock() - self._told < RARE_LINE_SECONDS:
                return
            self._told, untold, self._untold = None, self._untold, 0
        self._log.warning(f"over: {self._what}", extra={"untold": untold} if untold else {})
