"""Processes that have become another program at each look: lists of others leave them alone for a while.

What is read of one is worth nothing once it executes another program, and takes as long as ever. So whoever lists all
processes is told of it what everybody is told, without a look, for a time that doubles with each change that is seen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from profd.limits import (
    PROC_EXECS_SEEN_MAX,
    PROC_RESTLESS_SECONDS,
    PROC_RESTLESS_SECONDS_MAX,
    PROC_STUCK_MAX,
)
from profd.model.newest import Newest
from profd.targets.process import ProcessId

_DOUBLED_MAX: Final = 16  # times


class Restless:
    """The changes that looks have seen, by process; the one that changed longest ago is forgotten first.

    Safe in any thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._changes = Newest[ProcessId, tuple[int, float]](PROC_STUCK_MAX)  # how many, and when the last was seen

    def changed(self, process: ProcessId) -> None:
        """A look found another program in it than the look before, or than when it began."""
        now = self._clock()
        with self._lock:
            count, last = self._changes.get(process, (0, now))
            if now - last > 2 * PROC_RESTLESS_SECONDS_MAX:  # it has stayed as it was
                count = 0
            self._changes[process] = (count + 1, now)

    def left_alone(self, process: ProcessId) -> bool:
        """It is not to be looked at now for somebody else."""
        count, last = self._changes.get(process, (0, 0.0))
        beyond = count - PROC_EXECS_SEEN_MAX
        if beyond <= 0:
            return False
        doubled: int = 1 << min(beyond - 1, _DOUBLED_MAX)
        alone = min(PROC_RESTLESS_SECONDS * doubled, PROC_RESTLESS_SECONDS_MAX)
        return self._clock() - last < alone
