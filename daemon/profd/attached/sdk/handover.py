"""The end of a recording: what is left in the arena arrives, then the agent lets go of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from profd.attached.agents.agent import Agent, Arm
from profd.attached.agents.protocol import Left, Status
from profd.attached.sdk import orphans
from profd.attached.sdk.arena_size import ArenaSizes
from profd.attached.sdk.planning import DRAIN_ROUNDS, DRAIN_SECONDS, TORCH_STOP_SECONDS, Collecting
from profd.attached.sdk.ports import Drain, Ingest, Intake, Streamers
from profd.attached.sdk.remembered import Recalls
from profd.kernel.freeing import let_go
from profd.model.capture import Loss

STEPS_AFTER: Final = 4  # the first of them was recorded in part
STEPS_AFTER_SECONDS: Final = 0.25
STEPS_OVER_SECONDS: Final = 35.0  # an agent watches them for 30 s at most


@dataclass(frozen=True, slots=True)
class SdkParts:
    """The parts of the daemon that a recording needs."""

    ingest: Ingest
    streamers: Streamers
    arena_bytes: int  # where the process can bear it: `sizes` knows
    collecting: Collecting = field(default_factory=Collecting)
    sizes: ArenaSizes = field(default_factory=ArenaSizes)
    recalls: Recalls = field(default_factory=Recalls)


async def stop(agent: Agent, arm: Arm, seconds: float) -> bool:
    """Ask the agent to stop, if it has not; whether it says within `seconds` that nothing more is written."""
    if arm.stopped is None and arm.gone is None:
        agent.stop()
    await _heard(arm, lambda: arm.stopped is not None, seconds)
    return arm.stopped is not None


async def empty(drain: Drain, intake: Intake, *, target_died: bool) -> bool:
    """Whether everything that was left in the arena has arrived: waited for while events come, for DRAIN_ROUNDS."""
    emptying = asyncio.ensure_future(_emptied(drain, intake, target_died=target_died))
    try:
        for _ in range(DRAIN_ROUNDS):
            before = intake.events
            done, _ = await asyncio.wait({emptying}, timeout=DRAIN_SECONDS)
            if done:
                emptying.result()
                break
            if intake.events == before:
                break
    finally:
        emptying.cancel()
    return intake.finished.is_set()


async def _emptied(drain: Drain, intake: Intake, *, target_died: bool) -> None:
    await drain.finish(target_died=target_died)
    if not drain.problem:
        await intake.finished.wait()


async def see_steps(arm: Arm) -> None:
    """Wait for the steps after a recording, where they are so short that this takes a moment only."""
    step_ns = arm.status.step_ns_before or arm.status.step_ns
    if arm.stopped is None or step_ns is None or step_ns * STEPS_AFTER > STEPS_AFTER_SECONDS * 1e9:
        return
    await _heard(arm, lambda: arm.status.step_ns_after is not None, STEPS_AFTER_SECONDS)


async def see_all_steps(arm: Arm) -> Status:
    """Wait for the agent's last word about the steps after a recording, which comes some seconds later."""
    await _heard(arm, lambda: arm.status.after_over, STEPS_OVER_SECONDS)
    return arm.status


async def _heard(arm: Arm, said: Callable[[], bool], seconds: float) -> None:
    """Wait until it has been said, the agent is gone, or so much time has passed."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not said() and arm.gone is None:
                arm.news.clear()
                await arm.news.wait()


async def take_over(agent: Agent, arm: Arm, fd: int, directory: Path, parts: SdkParts) -> Sequence[Loss] | None:
    """End a recording of an earlier daemon: its arena's content joins what is in `directory`.

    Closes `fd`. Returns what was lost; None if not all of it came, and how much is missing is not known. Raises
    what `Ingest.expect` raises.
    """
    key = agent.hello.incarnation, arm.epoch
    try:
        with contextlib.ExitStack() as ending:
            try:
                intake = await parts.ingest.expect(*key, agent.uid, directory)
                ending.enter_context(contextlib.closing(intake))
                drain = parts.streamers.drain(agent.uid, *key, fd)
                ending.enter_context(contextlib.closing(drain))
            finally:
                let_go(fd)
            stopped = await stop(agent, arm, TORCH_STOP_SECONDS)
            drain.may_be_written = not stopped and arm.gone != ""
            if not await empty(drain, intake, target_died=not stopped):
                return None
            await asyncio.to_thread(orphans.forget, intake.path)
            return list(intake.losses)
    finally:
        agent.release()  # one that records still stops first


async def count_left(agent: Agent, left: Left, directory: Path, parts: SdkParts) -> Sequence[Loss]:
    """What is lost of a recording whose process has let go of its arena: all that is not in `directory`.

    Raises what `Ingest.expect` raises. The note of it stays: the next daemon counts again, should this one die before
    the capture's end is on disk.
    """
    intake = await parts.ingest.expect(agent.hello.incarnation, left.epoch, agent.uid, directory)
    with contextlib.closing(intake):
        await intake.finish([("target", "dropped", left.dropped)], left.events)
        return list(intake.losses)
