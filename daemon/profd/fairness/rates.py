"""How often one user may ask for what costs much: a bucket of tokens for each, filled as time passes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from profd.fairness.shares import Holder, Refused
from profd.limits import RATES_USERS_MAX, STARTS_BURST, STARTS_PER_SECOND
from profd.model.newest import Newest


@dataclass(frozen=True, slots=True)
class Rate:
    """A thing that is asked for: so often a second for long, `burst` at once."""

    kind: str
    what: str  # completes "… a second"
    per_second: float
    burst: int

    def refusal(self, seconds: float) -> Refused:
        """What is said to who has used it up, until there is more in so many seconds."""
        return Refused(
            f"one user may have {self.per_second:g} {self.what} a second ({self.burst} at once after a pause), and "
            f"yours are used up; try again in {seconds:.1f} s",
            *(self.kind, self.per_second, self.burst, seconds),
        )


STARTS: Final = Rate("start_rate", "starts of captures", STARTS_PER_SECOND, STARTS_BURST)
"""People's, and apart from them those that programs ask for."""


class Rates:
    """The buckets of one rate. The user who runs the host, or this daemon, is not limited."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        # uid -> tokens at a time; the longest untouched first
        self._buckets = Newest[int, tuple[float, float]](RATES_USERS_MAX)

    def take(self, holder: Holder, count: int = 1) -> None:
        """Use so many tokens, at most `burst`. Raises Refused saying when there are as many."""
        if holder.reserved:
            return
        tokens = self._tokens(holder)
        refused = tokens < count
        self._keep(holder, tokens if refused else tokens - count)
        if refused:
            raise self._rate.refusal((count - tokens) / self._rate.per_second)

    def owe(self, holder: Holder, count: int = 1) -> float:
        """Use so many tokens even if there are fewer; the seconds until none is owed. Waiting them keeps the rate."""
        if holder.reserved:
            return 0.0
        tokens = self._tokens(holder) - count
        self._keep(holder, tokens)
        return max(0.0, -tokens / self._rate.per_second)

    def _tokens(self, holder: Holder) -> float:
        rate, now = self._rate, self._clock()
        tokens, before = self._buckets.get(holder.uid, (rate.burst, now))
        return min(rate.burst, tokens + (now - before) * rate.per_second)

    def _keep(self, holder: Holder, tokens: float) -> None:
        self._buckets[holder.uid] = (tokens, self._clock())
