"""Targets that an earlier daemon was recording: no end is told of one until it is known which it is.

Their processes go on recording for a while and look for the next daemon. One that comes back has what it recorded taken
over and stored; one that ends, or stays away for longer than that, leaves what had arrived. What one has written to a
file of its own is taken first (sources/kineto/salvage).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from profd.capture.machine import Broke, Graces, Orphaned, Report, TakenOver
from profd.capture.ports import Ended
from profd.capture.records import TargetRecord
from profd.capture.run import TargetRun
from profd.journal.journal import Key, any_data
from profd.limits import AGENT_RETURN_SECONDS
from profd.model.capture import Loss, Reason, State
from profd.targets.process import ProcessId

End = Callable[[TargetRecord], Awaitable[str]]
"""Looks for what there is of a target, and is the sentence of its end."""

RESTARTED: Final = "profd was restarted during the capture"
KEPT: Final = "its raw data is kept: `profctl retry`"
_NOTHING_YET: Final = "nothing of it has arrived; should the process come back with it, `profctl retry` stores it"
_NOTHING: Final = "the process ended before another profd was there, and nothing had arrived; how much is not known"


@dataclass(slots=True)
class _Coming:
    """One of them. `losses`: None where not all of it came."""

    run: TargetRun
    task: asyncio.Task[None] | None = None
    process_ended: bool = False
    returned: asyncio.Event = field(default_factory=asyncio.Event)
    losses: asyncio.Future[Sequence[Loss] | None] = field(default_factory=asyncio.Future)


class Recovery:
    """Waits for each of them, and gives it its one end."""

    def __init__(self, graces: Graces, ended: Ended) -> None:
        self._graces = graces
        self._ended = ended
        self._coming: dict[Key, _Coming] = {}

    def expect(self, key: Key, run: TargetRun) -> None:
        """Wait for the process of this run, which has not begun."""
        coming = self._coming[key] = _Coming(run)
        run.send(Orphaned())
        coming.task = run.spawn(self._settle(key, coming))

    def expect_file(self, key: Key, run: TargetRun, settled: asyncio.Event, end: End) -> None:
        """Wait until what the process of this run has written is in the journal, or will not be."""
        coming = self._coming[key] = _Coming(run)
        run.send(Orphaned())
        run.send(Report(State.DRAINING, "profd was restarted; taking what the process has written"))
        coming.task = run.spawn(self._taken(key, coming, settled, end))

    async def _taken(self, key: Key, coming: _Coming, settled: asyncio.Event, end: End) -> None:
        try:
            await settled.wait()
            why = await end(coming.run.target)
        finally:
            del self._coming[key]
        coming.run.send(Broke(Reason.DAEMON_RESTARTED, why))

    def returned(self, key: Key) -> None:
        """The process has come back; `recovered` will tell what has come of it."""
        coming = self._coming.get(key)
        if coming is not None:
            coming.returned.set()

    def recovered(self, key: Key, losses: Sequence[Loss] | None) -> bool:
        """All that it recorded is in its files, less these losses (None: not all). False: nobody waits for it."""
        coming = self._coming.get(key)
        if coming is None or coming.losses.done():
            return False
        coming.returned.set()
        coming.losses.set_result(losses)
        return True

    def let_go(self, *, taken_over_too: bool = False) -> None:
        """The daemon goes away: who has not come back has no end yet, and is left to the next one to wait for."""
        for coming in self._coming.values():
            if coming.task is not None and (taken_over_too or not coming.returned.is_set()):
                coming.task.cancel()

    async def _settle(self, key: Key, coming: _Coming) -> None:
        try:
            why = await self._why_not(key[1], coming)
        finally:
            del self._coming[key]
        losses = () if why else tuple(coming.losses.result() or ())
        if why:
            coming.run.send(Broke(Reason.DAEMON_RESTARTED, f"{why}; {_for_retry(coming)}"))
        elif any_data(coming.run.target.files):
            coming.run.send(TakenOver(losses))
        else:
            coming.run.send(Broke(Reason.DAEMON_RESTARTED, _all_lost(coming.run.target, losses)))

    async def _why_not(self, process: ProcessId, coming: _Coming) -> str:
        """Why there is nothing to be stored; empty once there is."""
        if not await self._comes_back(process, coming):
            return RESTARTED
        coming.run.send(Report(State.DRAINING, "taking over what was recorded"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._graces.taking_over_ns / 1e9):
                if await coming.losses is not None:
                    return ""
        return f"{RESTARTED}, and what the process went on to record came in part only"

    async def _comes_back(self, process: ProcessId, coming: _Coming) -> bool:
        ending = asyncio.ensure_future(self._ended(process))
        waiting = {ending, asyncio.ensure_future(coming.returned.wait())}
        try:
            seconds = self._graces.returning_ns / 1e9
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            coming.process_ended = ending.done()
        finally:
            for each in waiting:
                each.cancel()
        return coming.returned.is_set()


def counted_late(target: TargetRecord, losses: Sequence[Loss]) -> bool:
    """Note what is lost of one that has failed already, for who looks or retries; whether that was news."""
    if target.state is not State.FAILED or not target.files or target.shortfall is Reason.DAEMON_RESTARTED:
        return False
    if any_data(target.files):
        target.cut_off(losses)
    else:
        target.message = _all_lost(target, losses)
    return True


def _for_retry(coming: _Coming) -> str:
    """A sentence. Where nothing has come, and nothing can, there is nothing to be kept."""
    if any_data(coming.run.target.files):
        return KEPT
    if not coming.process_ended:
        return _NOTHING_YET
    coming.run.target.keep([])
    return _NOTHING


def _all_lost(target: TargetRecord, losses: Sequence[Loss]) -> str:
    """A sentence, where nothing has arrived and nothing can any more."""
    target.keep([])
    target.lost = [*target.lost, *losses]
    events = sum(loss.count for loss in losses if loss.stage != "target")  # those had found no room there
    if not events:
        return f"{RESTARTED}; nothing had been recorded"
    return (
        f"{RESTARTED}; none of the {events:,} events that the process recorded has arrived: it keeps them for "
        f"{AGENT_RETURN_SECONDS:g} s without a profd"
    )
