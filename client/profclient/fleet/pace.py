"""So many bytes a second and no more, whoever sends them. Pure but for its clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

BYTES_PER_SECOND: Final = 64 << 20  # of all hosts together: half of a 1 Gbit/s network, and little of others


class Pace:
    """`wait` says how long the next piece has to. What was not used in a pause is not made up for."""

    def __init__(self, bytes_per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = bytes_per_second, clock
        self._free = clock()  # from when on the next piece may go

    def wait(self, size: int) -> float:
        """Seconds until a piece of so many bytes has had its time."""
        now = self._clock()
        self._free = max(self._free, now) + size / self._rate
        return self._free - now
