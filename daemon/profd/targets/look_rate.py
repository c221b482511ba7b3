"""How many bytes of the files of one user's processes are read, for all who look at processes together.

What changes all the time is read again at every look; the bytes and their parsing are paid for by whoever's processes
they are of, and lists of others do not become slower by them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from profd.limits import PROC_LOOK_BYTES, PROC_LOOK_BYTES_BURST, PROC_LOOK_BYTES_PER_SECOND, RATES_USERS_MAX
from profd.model.newest import Newest


class LookRate:
    """A bucket of bytes for each uid. Safe in any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # uid -> bytes at a time; the longest untouched first
        self._levels = Newest[int, tuple[float, float]](RATES_USERS_MAX)

    def used_up(self, uid: int) -> bool:
        """Whether nothing more is to be read now."""
        with self._lock:
            return self._level(uid, self._clock()) <= 0

    def take(self, uid: int, count: int) -> None:
        """So many were read: more than there were, perhaps, which later ones have to wait for."""
        with self._lock:
            now = self._clock()
            level = self._level(uid, now) - count - PROC_LOOK_BYTES
            self._levels[uid] = (level, now)

    def _level(self, uid: int, now: float) -> float:
        level, before = self._levels.get(uid, (float(PROC_LOOK_BYTES_BURST), now))
        return min(float(PROC_LOOK_BYTES_BURST), level + (now - before) * PROC_LOOK_BYTES_PER_SECOND)
