"""Looks at processes before they are recorded: the event loop looks at a few, a thread at many, users in turn.

A look takes tenths of a millisecond. A thread is milliseconds away where cores are busy, which a recording of one
process need not wait for; those of a hundred processes on the event loop would keep everybody's answers waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar, TypeVarTuple

from profd.fairness.thread_by_turns import ThreadByTurns
from profd.targets import guarded
from profd.targets.identity import Accepted, Standing
from profd.targets.looks import patient
from profd.targets.process import ProcessId

Seen = TypeVar("Seen")
Given = TypeVarTuple("Given")

FEW: Final = 4  # processes of a capture, or of an estimate, that the event loop looks at: about a millisecond

_thread: Final = ThreadByTurns("profd-first-looks", prepare=guarded.others_wait)


async def look(uid: int, together: int, at: Callable[[*Given], Seen], *given: *Given) -> Seen:
    """What `at` sees, which raises what it raises. `together`: processes that are looked at for the same request."""
    if together <= FEW:
        return at(*given)
    return await asyncio.wrap_future(_thread.submit(uid, at, *given))


async def standing(accepted: Accepted, together: int) -> Standing:
    """How it stands now: by a second look that waits for longer, where the first has no answer."""
    found = await look(accepted.uid, together, accepted.standing)
    return await asyncio.wrap_future(patient.submit(accepted.uid, accepted.standing)) if accepted.silent else found


async def accept(process: ProcessId, uid: int, together: int) -> Accepted:
    """`Accepted`, of a look; of a second one that waits for longer, where the first has no answer. Raises Exhausted."""
    if together <= FEW:
        found = Accepted(process, uid)
    else:
        found = await _accepted(_thread.submit(uid, Accepted, process, uid))
    if not found.silent:
        return found
    found.close()
    return await _accepted(patient.submit(uid, Accepted, process, uid))


async def _accepted(asked: Future[Accepted]) -> Accepted:
    try:
        return await asyncio.wrap_future(asked)
    except asyncio.CancelledError:
        asked.add_done_callback(_close)  # it holds a descriptor, or soon will
        raise


def _close(asked: Future[Accepted]) -> None:
    """Let go of one that nobody waits for any more."""
    if not asked.cancelled():
        with contextlib.suppress(Exception):  # it could not be accepted
            asked.result().close()
