"""How many seconds each user has had processes recorded within about an hour, and how many that may be."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from profd.fairness.shares import Refused
from profd.limits import RATES_USERS_MAX, RECORDED_SECONDS_PER_HOUR
from profd.model.newest import Newest
from profd.trust.caller import Caller

_PER_SECOND: Final = RECORDED_SECONDS_PER_HOUR / 3600


class RecordedSeconds:
    """A user's use rises by a second for each second of each process, and falls by the whole limit in an hour.

    Seconds above the limit when a capture ends were not refused, and take so much longer to fall off. A restart of the
    daemon forgets it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # uid -> seconds at a time; the longest untouched first
        self._used = Newest[int, tuple[float, float]](RATES_USERS_MAX)

    def add(self, uid: int, seconds: float) -> None:
        """One process was recorded for so long."""
        if seconds <= 0:
            return
        used = self._used_by(uid) + seconds
        self._used[uid] = (used, self._clock())

    def check(self, caller: Caller, running: float) -> None:
        """Before one more capture, with what those that run will have recorded at most. Raises Refused."""
        use = self._used_by(caller.uid) + running
        if caller.admin or use < RECORDED_SECONDS_PER_HOUR:
            return
        seconds = max(1.0, (use - RECORDED_SECONDS_PER_HOUR) / _PER_SECOND)
        raise Refused(
            f"{use:.0f} seconds of processes were recorded for you within the last hour, or are about to be, of "
            f"{RECORDED_SECONDS_PER_HOUR} that one user may have; try again in {seconds:.0f} s, or record fewer "
            "processes, for a shorter time",
            *("recorded_seconds", RECORDED_SECONDS_PER_HOUR, use, seconds),
        )

    def _used_by(self, uid: int) -> float:
        used, then = self._used.get(uid, (0.0, 0.0))
        return max(0.0, used - (self._clock() - then) * _PER_SECOND)
