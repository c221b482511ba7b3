"""Looks at processes that are repeated while these are recorded: one thread asks for all of them, users in turn.

On the event loop each would keep everybody waiting; in its threads lists of others would wait for them; and in a
thread of each kind, first come first served, a user with many processes would keep another's looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from profd.fairness.thread_by_turns import ThreadByTurns
from profd.targets import guarded
from profd.targets.identity import Accepted

Seen = TypeVar("Seen")

looks: Final = ThreadByTurns("profd-repeated", prepare=guarded.others_wait)
"""Waits no longer for a process that does not answer than the event loop would."""

patient: Final = ThreadByTurns("profd-patient", prepare=guarded.waits_patiently)
"""For those that have not answered in so short a time, which a busy host does to any process: it waits for longer."""


async def seen(accepted: Accepted, look: Callable[[], Seen]) -> Seen:
    """What `look` sees, which asks how an accepted process stands: once more, and patiently, where that is silent."""
    found = await asyncio.wrap_future(looks.submit(accepted.uid, look))
    if accepted.silent:
        found = await asyncio.wrap_future(patient.submit(accepted.uid, look))
    return found
