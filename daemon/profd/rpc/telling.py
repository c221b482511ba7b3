"""How much of captures one user is told in a second: a message with hundreds of processes is milliseconds of the loop.

A user who has used that up waits. A process that is recorded decides itself how often it has news, and its user how
many watch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from profd.fairness.rates import Rate, Rates
from profd.fairness.shares import Holder
from profd.limits import TARGETS_TOLD_BURST, TARGETS_TOLD_PER_SECOND
from profd.trust.caller import Caller

MESSAGE: Final = 4  # processes that cost as much as a message does beside those in it (0.2 ms)
_RATE: Final = Rate("targets_told", "processes in answers about captures", TARGETS_TOLD_PER_SECOND, TARGETS_TOLD_BURST)


class Telling:
    """The shares of all users. On the event loop."""

    def __init__(
        self,
        rate: Rate = _RATE,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`sleep`: waits so many seconds."""
        self._rates = Rates(rate, clock)
        self._sleep = sleep

    async def may(self, caller: Caller, targets: int, messages: int = 1) -> bool:
        """Return when messages with so many processes in all may be made. True: that took time."""
        holder, cost = Holder.of(caller), targets + messages * MESSAGE
        seconds = self._rates.owe(holder, cost)
        if seconds:
            try:
                await self._sleep(seconds)
            except asyncio.CancelledError:  # nothing was made
                self._rates.owe(holder, -cost)
                raise
        return seconds > 0
