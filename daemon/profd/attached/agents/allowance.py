"""How much all attached processes of one user may say together: what is beyond stays where it is, unread.

One agent is cut off when it says more than an agent has to say (`link.py`); a thousand that keep within that would
still have the event loop for themselves. Here nobody is cut off: the sockets of the user are left alone until there is
an allowance again, their porter waits, and so do those who send.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from profd.fairness.shares import Holder
from profd.limits import (
    AGENT_PACKET_UNIT_BYTES,
    AGENT_UNITS_BURST,
    AGENT_UNITS_PER_UID_PER_SECOND,
    RATES_USERS_MAX,
)
from profd.model.newest import Newest

_PAUSE_SECONDS: Final = 0.05  # at least, until it is looked again whether there is some

Resume = Callable[[], None]


class Allowance:
    """Of one user. A packet costs a unit for each AGENT_PACKET_UNIT_BYTES, one at least."""

    def __init__(
        self,
        per_second: float = AGENT_UNITS_PER_UID_PER_SECOND,
        burst: float = AGENT_UNITS_BURST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_second = per_second
        self._burst = self._units = float(burst)
        self._clock = clock
        self._looked = clock()
        self._waiting: deque[Resume] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Links that are not read from."""
        return len(self._waiting)

    def spend(self, count: int) -> None:
        """A packet of so many bytes was read."""
        self._units -= max(1.0, count / AGENT_PACKET_UNIT_BYTES)

    def left(self) -> bool:
        """Whether one more packet may be read now, however large it is."""
        now = self._clock()
        self._units = min(self._burst, self._units + (now - self._looked) * self._per_second)
        self._looked = now
        return self._units > 0

    def wait(self, resume: Resume) -> None:
        """`resume` is called once when it is this one's turn: the others of the user that wait come before it."""
        self._waiting.append(resume)
        self._set_timer()

    def go_on(self) -> None:
        """Let those read whose turn it is, as long as there is something left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and self.left():
            self._waiting.popleft()()
        self._set_timer()

    def _set_timer(self) -> None:
        if self._waiting and self._timer is None:
            seconds = max(_PAUSE_SECONDS, -self._units / self._per_second)
            self._timer = asyncio.get_running_loop().call_later(seconds, self.go_on)


class Allowances:
    """Of all users."""

    def __init__(self) -> None:
        self._users = Newest[int, Allowance](RATES_USERS_MAX)  # the longest unused first

    def of(self, holder: Holder) -> Allowance | None:
        """A user's allowance; None: without a limit. It outlives the user's connections: coming again buys nothing."""
        if holder.reserved:
            return None
        found = self._users.get(holder.uid) or Allowance()
        self._users[holder.uid] = found
        return found
