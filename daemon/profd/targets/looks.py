"""Looks at processes that are repeated while these are recorded: one thread asks for all of them, users in turn.

On the event loop each would keep everybody waiting; in its threads lists of others would wait for them; and in a
thread of each kind, first come first served, a user with many processes would keep another's looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from profd.fairness.thread_by_turns import ThreadByTurns
from profd.targets import guarded

looks: Final = ThreadByTurns("profd-repeated", prepare=guarded.others_wait)
"""Waits no longer for a process that does not answer than the event loop would."""


async def repeat(uid: int, look: Callable[[], float]) -> None:
    """Look in that thread, in turn with other users, until this is cancelled; each look says after how many seconds."""
    while True:
        await asyncio.sleep(await asyncio.wrap_future(looks.submit(uid, look)))
