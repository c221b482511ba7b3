"""A fault that lasts: the daemon's log hears of it once, not with every line that it costs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from profd.limits import AUDIT_INTERVAL_SECONDS

log: Final = logging.getLogger("profd.audit")


class Trouble:
    """One kind of fault. It is over when things went well and nothing was said for an interval."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._said: float | None = None

    def met(self, error: OSError) -> None:
        """It happened."""
        if self._said is None:
            log.error(self._what, extra={"why": str(error)})
            self._said = self._clock()

    def over(self) -> None:
        """It did not happen this time."""
        if self._said is not None and self._clock() - self._said >= AUDIT_INTERVAL_SECONDS:
            log.warning(f"over: {self._what}")
            self._said = None
