"""One recording of an attached process, from ARM to RELEASE.

    ARM -> ARMED -> (the streamer drains) -> STOP -> STOPPED -> the rest is drained -> RELEASE

Whatever happens to the process, what it had published in its arena is kept: the
daemon holds the arena's memory by its descriptor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal

from profd.agents.agent import Agent, Arm, Armed, ArmOrder, NotArmed
from profd.agents.protocol import Hello, Status
from profd.capture.model import Cost, Options, Phase, RawFile, Reason, Recording, State
from profd.limits import CAPTURE_WINDOW_MAX_NS
from profd.sources.base import Session
from profd.sources.sdk import planning
from profd.sources.sdk.ports import Drain, Ingest, Intake, Streamers
from profd.targets.process import Process

_SILENT_SECONDS: Final = 3.0  # without a STATUS, which comes every second


class Ending(Enum):
    """Why the window is over."""

    WINDOW = auto()  # its time has come
    ASKED = auto()  # the user, or the deadline
    ITSELF = auto()  # the agent says it has stopped
    GONE = auto()  # the process is gone, or another program by now
    BROKEN = auto()  # nothing of what it records arrives any more


@dataclass(frozen=True, slots=True)
class Parts:
    """What a recording needs of the daemon."""

    ingest: Ingest
    streamers: Streamers
    arena_bytes: int


class Recorder:
    """Records one process once. `run` is called once."""

    def __init__(self, agent: Agent, process: Process, options: Options, session: Session, parts: Parts) -> None:
        self._agent = agent
        self._process = process
        self._options = options
        self._session = session
        self._parts = parts
        self._hello = agent.hello
        self._epoch = secrets.randbits(63) | 1  # 0 means none
        self._began_ns = time.time_ns()
        self._phases: list[Phase] = []
        self._mark_ns = time.monotonic_ns()
        self.status = Status()  # the last one
        self.events = 0  # that arrived

    async def run(self) -> Recording:
        """Record; whatever happens, the agent is told to stop, and the arena let go of."""
        if await self._stopped_before_start():
            return Recording(State.CANCELLED, Reason.CANCELLED_BY_USER, "stopped before the window began")
        self._session.report(State.ARMED, "arming the process")
        intake = self._parts.ingest.expect(
            self._hello.incarnation, self._epoch, self._process.uid, self._session.directory
        )
        with contextlib.closing(intake):
            try:
                armed, arm = await self._agent.arm(self._order(), planning.ARM_SECONDS)
            except NotArmed as error:
                return self._not_armed(error)
            try:
                return await self._record(armed, arm, intake)
            finally:
                self._agent.stop()  # nothing, if it has been released
                self._agent.release()

    async def _record(self, armed: Armed, arm: Arm, intake: Intake) -> Recording:
        self._session.keep([RawFile(str(intake.path), "chunks")])
        try:
            drain = self._parts.streamers.drain(
                self._process.uid, self._process.gid, self._hello.incarnation, self._epoch, armed.fd
            )
        finally:
            os.close(armed.fd)
        with contextlib.closing(drain):
            self._phase("arm")
            ending = await self._window(arm, intake, drain)
            self._phase("window")
            self._session.report(State.DRAINING, "taking over what was recorded")
            target_died = not await self._stop(arm)
            self._phase("stop")
            end_ns = time.time_ns()
            whole = await self._drain(drain, intake, target_died=target_died)
            self._phase("drain")
            self._agent.release()
            self.status, self.events = arm.status, intake.events
            recording = self._recording(armed, arm, intake, end_ns)
            self._explain(recording, ending, arm, intake, drain, whole=whole)
            return recording

    def _order(self) -> ArmOrder:
        return ArmOrder(
            epoch=self._epoch,
            arena_bytes=self._parts.arena_bytes,
            options=planning.words(self._options),
            window_ns=self._options.duration_ns,
            iterations=self._options.iterations,
            max_overhead=self._options.max_overhead,
        )

    async def _stopped_before_start(self) -> bool:
        """Wait for the agreed start; True if the capture was stopped meanwhile."""
        ahead = 0.0
        if self._options.start_at_ns is not None:
            ahead = (self._options.start_at_ns - time.time_ns()) / 1e9
        if ahead > 0:
            self._session.report(State.ARMED, "waiting for the agreed start")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._session.stop.wait(), ahead)
        self._mark_ns = time.monotonic_ns()
        return self._session.stop.is_set()

    async def _window(self, arm: Arm, intake: Intake, drain: Drain) -> Ending:
        """Until the window is over, for whatever reason."""
        window_ns = self._options.duration_ns or CAPTURE_WINDOW_MAX_NS
        end = time.monotonic() + window_ns / 1e9
        self._tell(arm)
        async with _waiting(self._session.stop, drain.ended) as waiting:
            while True:
                arm.news.clear()
                ending = self._ending(arm, intake, drain, end)
                if ending is not None:
                    return ending
                left = end - time.monotonic()
                if not await waiting.any_of(arm.news, min(left, _SILENT_SECONDS)) and left > _SILENT_SECONDS:
                    self._session.report(State.RECORDING, "the process is silent; is it stopped?")
                else:
                    self._tell(arm)

    def _ending(self, arm: Arm, intake: Intake, drain: Drain, end: float) -> Ending | None:
        if arm.gone is not None:
            return Ending.GONE
        if arm.stopped is not None:
            return Ending.ITSELF
        if self._session.stop.is_set():
            return Ending.ASKED
        if intake.failure or drain.ended.is_set():
            return Ending.BROKEN
        if self._options.iterations and arm.status.steps >= self._options.iterations:
            return Ending.WINDOW
        return Ending.WINDOW if time.monotonic() >= end else None

    def _tell(self, arm: Arm) -> None:
        wanted = self._options.iterations
        doing = f"step {min(arm.status.steps, wanted)} of {wanted}" if wanted else "the window is open"
        self._session.report(State.RECORDING, doing)

    async def _stop(self, arm: Arm) -> bool:
        """Whether the agent says that nothing more is written."""
        if arm.stopped is None and arm.gone is None:
            self._agent.stop()
        deadline = time.monotonic() + planning.STOP_SECONDS
        while arm.stopped is None and arm.gone is None:
            arm.news.clear()
            try:
                await asyncio.wait_for(arm.news.wait(), deadline - time.monotonic())
            except TimeoutError:
                break
        return arm.stopped is not None

    async def _drain(self, drain: Drain, intake: Intake, *, target_died: bool) -> bool:
        """Whether everything that was left in the arena has arrived."""
        try:
            async with asyncio.timeout(planning.DRAIN_SECONDS):
                await drain.finish(target_died=target_died)
                if not drain.problem:
                    await intake.finished.wait()
        except TimeoutError:
            return False
        return intake.finished.is_set()

    def _recording(self, armed: Armed, arm: Arm, intake: Intake, end_ns: int) -> Recording:
        last_ns = arm.stopped.last_ns if arm.stopped is not None else None
        return Recording(
            files=[RawFile(str(intake.path), "chunks")],
            start_ns=armed.first_ns or self._began_ns,
            end_ns=last_ns or end_ns,
            lost=list(intake.losses),
            not_honoured=list(armed.not_honoured),
            waterfall=list(self._phases),
            cost=cost(arm.status),
            versions=versions(self._hello),
        )

    def _explain(
        self, recording: Recording, ending: Ending, arm: Arm, intake: Intake, drain: Drain, *, whole: bool
    ) -> None:
        """Say what is missing, and why."""
        if ending is Ending.GONE or arm.gone is not None:
            recording.reason = Reason.TARGET_ENDED
            recording.message = (
                f"the process ended during the capture; {intake.events} events that it had recorded are kept"
            )
        elif arm.stopped is None:
            recording.warnings.append(
                "the process did not answer when its window was over (is it stopped?); what it had recorded was "
                "taken over, and it ends recording by itself when it runs again"
            )
        elif ending is Ending.ITSELF:
            self._explain_itself(recording, arm.stopped.reason)
        if intake.failure:
            recording.reason, recording.message = Reason.DISK_FULL, intake.failure
        elif not whole:
            recording.reason = Reason.SOURCE_FAILED if drain.problem else Reason.TIMEOUT
            recording.message = drain.problem or (
                f"what was left in the process's memory did not arrive within {planning.DRAIN_SECONDS:g} s; "
                "what came before is kept"
            )
        if drain.restarts:
            recording.warnings.append(f"the streamer had to be started again {drain.restarts} times")
        if not intake.events and recording.reason is Reason.NONE:
            recording.warnings.append("nothing was recorded: no range, operator or call ran in the window")

    def _explain_itself(self, recording: Recording, reason: str) -> None:
        if reason == "overhead":
            recording.reason = Reason.OVER_LIMIT
            recording.message = (
                f"stopped early: recording took more than --max-overhead "
                f"{(self._options.max_overhead or 0) * 100:g} % whatever was left out; what was recorded is kept"
            )
        elif reason in ("exit", "fork"):
            recording.reason = Reason.TARGET_ENDED
            recording.message = "the program ended during the capture; what it recorded is kept"
        elif reason == "stop":
            recording.warnings.append("the program ended the recording itself")

    def _not_armed(self, error: NotArmed) -> Recording:
        if error.gone:
            return Recording(State.FAILED, Reason.TARGET_ENDED, "the process ended before it was armed")
        if error.silent:
            return Recording(
                State.FAILED,
                Reason.TARGET_SILENT,
                f"{error}: is it stopped? (kill -CONT {self._process.id.pid}) For samples: --source pyspy",
            )
        return Recording(State.REFUSED, Reason.SOURCE_FAILED, f"the process could not be armed: {error}")

    def _phase(self, name: str) -> None:
        now = time.monotonic_ns()
        self._phases.append(Phase(name, now - self._mark_ns))
        self._mark_ns = now


def cost(status: Status) -> Cost:
    """What the agent measured."""
    ratio = None
    if status.step_ns and status.step_ns_before:
        ratio = status.step_ns / status.step_ns_before
    parts = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in sorted(status.by_source.items()))
    return Cost("measured", ratio, status.seconds, parts)


def versions(hello: Hello) -> dict[str, str]:
    """Of what was in the process."""
    name, _, version = hello.framework.partition(" ")
    found = {"profclient": hello.agent, "python": hello.python, name: version}
    return {key: value for key, value in found.items() if key and value}


class _Waiting:
    """Waits for one event that comes and goes beside some that stay."""

    def __init__(self, tasks: set[asyncio.Future[Literal[True]]]) -> None:
        self._tasks = tasks

    async def any_of(self, event: asyncio.Event, seconds: float) -> bool:
        """Whether something happened within that time."""
        coming = asyncio.ensure_future(event.wait())
        try:
            done, _ = await asyncio.wait(
                {coming, *self._tasks}, timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            coming.cancel()
        return bool(done)


@contextlib.asynccontextmanager
async def _waiting(*events: asyncio.Event) -> AsyncIterator[_Waiting]:
    tasks: set[asyncio.Future[Literal[True]]] = {asyncio.ensure_future(event.wait()) for event in events}
    try:
        yield _Waiting(tasks)
    finally:
        for task in tasks:
            task.cancel()
