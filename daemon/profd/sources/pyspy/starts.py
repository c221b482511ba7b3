"""How many samplers there are, where they run, and which of them begins next.

Each start forks the daemon twice on its event loop, and makes a process that reads the symbols of an interpreter, on a
core of its own. So few begin at once, users in turn, however many processes a capture names. All sources that sample
share the one source, and so this.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from profd.fairness.by_turns import ByTurns
from profd.fairness.shares import Holder, Share, Shares
from profd.limits import (
    PYSPY_SAMPLERS_MAX,
    PYSPY_SAMPLERS_PER_CORE_MAX,
    PYSPY_SAMPLERS_PER_UID_MAX,
    PYSPY_SAMPLERS_RESERVED,
    PYSPY_START_HELD_SECONDS,
    PYSPY_STARTS_MAX,
    PYSPY_STARTS_PAUSE_SECONDS,
    PYSPY_TURN_SECONDS,
)
from profd.model.capture import State
from profd.sources.base import Session
from profd.sources.pyspy.lanes import SamplerLanes

_CORES: Final = os.cpu_count() or 1
SAMPLERS: Final = Share(
    *("samplers", "processes that are sampled"),
    each=min(PYSPY_SAMPLERS_PER_UID_MAX, _CORES * PYSPY_SAMPLERS_PER_CORE_MAX),
    host=PYSPY_SAMPLERS_MAX,
    reserved=PYSPY_SAMPLERS_RESERVED,
    retry_seconds=5,
)


class Starts:
    """Of one daemon. A user is whoever owns the process that is sampled."""

    def __init__(self, share: Share = SAMPLERS, places: int = 0) -> None:
        """`places`: samplers that begin at once; 0: as many as the host's cores bear."""
        self.on_waited: Callable[[float], None] = lambda seconds: None  # one had to, for its turn
        self._share = Shares(share)
        self.lanes = SamplerLanes()
        self._turns = ByTurns(places or min(PYSPY_STARTS_MAX, max(2, _CORES)), pause_seconds=PYSPY_STARTS_PAUSE_SECONDS)

    @contextmanager
    def one_more(self, uid: int) -> Iterator[frozenset[int]]:
        """A process of this user is sampled for the block, on these cores, and before it waits for its turn.

        Raises Refused.
        """
        with self._share.take(Holder(uid, uid in (0, os.geteuid()))), self.lanes.one_more(uid) as cores:
            yield cores

    async def turn(self, uid: int, session: Session) -> Callable[[], None] | None:
        """The turn to begin; None: the capture was stopped meanwhile, or it did not come in PYSPY_TURN_SECONDS.

        The returned function ends the turn: to be called when the sampler has begun or ended, as often as you like. It
        ends by itself after PYSPY_START_HELD_SECONDS.
        """
        if not self._turns.free:
            session.report(State.ARMED, "waiting for other samplers to begin")
        began = time.monotonic()
        getting = asyncio.ensure_future(self._turns.get(uid))
        stopping = asyncio.ensure_future(session.stop.wait())
        try:
            await asyncio.wait((getting, stopping), timeout=PYSPY_TURN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                return None
            return _for_a_while(getting.result())
        except asyncio.CancelledError:
            if getting.done() and not getting.cancelled():
                getting.result()()
            raise
        finally:
            getting.cancel()
            stopping.cancel()
            self.on_waited(time.monotonic() - began)


def _for_a_while(let_go: Callable[[], None]) -> Callable[[], None]:
    asyncio.get_running_loop().call_later(PYSPY_START_HELD_SECONDS, let_go)
    return let_go
