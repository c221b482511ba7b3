"""Samples beside a recording: asked for (`--samples 100hz`), or in the place of what a process does not record itself.

The daemon's sampler reads the stacks of a process from outside while the process records itself; both end up in one
trace, the samples on tracks beside the threads. Missing samples take nothing from the recording; where no event was
recorded at all, samples are the trace.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from profd.attached.agents.protocol import Hello
from profd.attached.sdk import planning
from profd.attached.sdk.pace import SHORTEST_SECONDS, Beside
from profd.errors import ProfdError
from profd.model.capture import Options, Reason, Recording, State
from profd.sources.base import Session, Source
from profd.targets.process import Process

QUIET_SECONDS: Final = 0.25  # without an event: the streamer brings the first within 20 ms
STOP_SECONDS: Final = 15.0  # for the sampler to write what it saw, once the window is over
TOO_SHORT: Final = (
    f"the window was too short for them (a sampler takes a moment to begin: {SHORTEST_SECONDS:g} s at least)"
)
TOO_LATE: Final = (
    "the window was over before the first one (the host is busy, or the process has very many threads): "
    "take a longer one"
)
RISK: Final = "samples: the process is read from outside and not paused; that takes CPU time of this host"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The samples of one recording."""

    hz: float
    cores: float | None = None  # of the host, at most; None: no limit
    asked: bool = True  # by a person: what is missing of them is not honoured
    spare: bool = False  # calls are recorded, which say more: kept where there were none
    after_seconds: float = 0.0  # from the beginning of the recording
    if_quiet: bool = False  # only where nothing has been recorded by then
    worth_seconds: float | None = None  # `if_quiet`: also where so much of the window has passed
    missed: bool = True  # that there are none is told; of those that are not needed it is not


def wanted(
    options: Options, hello: Hello, hz: Callable[[], float], beside: Callable[[], Beside | None]
) -> Wanted | None:
    """Samples are asked for, or stand in for events that a process does not record: at once where it may have nothing
    but ranges, else where no event has come after a moment, or the window is long enough for them to cost little. `hz`,
    `beside`: how often, unless that is asked.
    """
    if options.sample_hz is not None:
        return Wanted(options.sample_hz)
    window_s = options.duration_ns / 1e9
    if 0 < window_s < SHORTEST_SECONDS:
        return None
    calls = options.stacks or options.modules
    records = calls or (planning.has_torch(hello) and not planning.lacks_observer(options, hello))
    if not records:
        # A window of unknown length may be over before it is worth a sampler.
        return Wanted(hz(), asked=False, after_seconds=0.0 if window_s else SHORTEST_SECONDS)
    if calls or (cheap := beside()) is None:
        return Wanted(hz(), asked=False, spare=calls, after_seconds=QUIET_SECONDS, if_quiet=True)
    if window_s and window_s >= cheap.window_seconds:
        return Wanted(cheap.hz, asked=False, missed=False)
    worth_s = None if window_s else cheap.window_seconds
    return Wanted(cheap.hz, asked=False, after_seconds=QUIET_SECONDS, if_quiet=True, worth_seconds=worth_s)


def why_not(sampler: Source | None, process: Process, options: Options, hz: float) -> str:
    """Why a recording would have no samples beside it; empty: it would."""
    if sampler is None:
        return "this source records no stacks beside its events"
    offer = sampler.offer(process)
    if not offer.can:
        return f"{offer.reason} {offer.fix}".strip()
    return sampler.plan(process, _of_samples(options, hz)).refusal


def in_part(sampler: Source | None, process: Process, options: Options, hz: float) -> str:
    """A sentence about the part of the asked rate that the sampler does not keep; empty: it keeps all."""
    return sampler.plan(process, _of_samples(options, hz)).unserved.get("sample_hz", "") if sampler is not None else ""


def _of_samples(options: Options, hz: float) -> Options:
    """The options of a request that concern the sampler; where iterations decide, its stop ends it."""
    return Options(duration_ns=options.duration_ns, start_at_ns=options.start_at_ns, sample_hz=hz)


class Samples:
    """The sampler at work, from the moment this is made. To be ended, whatever happens."""

    def __init__(self, sampler: Source, process: Process, options: Options, session: Session, wanted: Wanted) -> None:
        self._wanted = wanted
        self._stop = asyncio.Event()
        own = Session(session.capture, session.directory, self._stop, lambda state, doing: None)
        own.together, own.cores_max = session.together, wanted.cores
        self._made = session.made
        self._task = asyncio.create_task(self._record(sampler, process, _of_samples(options, wanted.hz), own))
        self.sample_seconds: float | None = None  # CPU time that one took; known at the end
        self.reader = ""  # what took them; known at the end
        self.arrived: Callable[[], int] = lambda: 0  # events of the recording so far

    def around(self, session: Session) -> Session:
        """The session for the recording: with its window the sampler's is over."""

        def report(state: State, doing: str) -> None:
            if state is State.DRAINING:
                self._stop.set()
            session.report(state, doing)

        return replace(session, report=report)

    async def _record(self, sampler: Source, process: Process, options: Options, session: Session) -> Recording:
        try:
            if self._made is not None:
                await self._made
            if await self._not_worth_it():
                return Recording(State.CANCELLED, Reason.CANCELLED_BY_USER, TOO_SHORT)
            return await sampler.record(process, options, session)
        except (OSError, ProfdError) as error:
            return Recording(State.FAILED, Reason.SOURCE_FAILED, str(error))

    async def _not_worth_it(self) -> bool:
        """The window is over by then, or what has been recorded says more."""
        if not self._wanted.after_seconds:
            return False
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), self._wanted.after_seconds)
        if self._stop.is_set() or not (self._wanted.if_quiet and self.arrived()):
            return self._stop.is_set()
        if self._wanted.worth_seconds is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), self._wanted.worth_seconds)
        return self._wanted.worth_seconds is None or self._stop.is_set()

    async def join(self, recording: Recording) -> None:
        """Put the samples into a recording that is over; what is missing of what was asked is not honoured."""
        self._stop.set()
        empty = is_empty(recording)
        if not empty and (self._wanted.spare or recording.state is not State.DRAINING):
            return
        done, _ = await asyncio.wait([self._task], timeout=STOP_SECONDS)
        if not done:
            self._miss(recording, f"they were not written within {STOP_SECONDS:.0f} s")
            return
        found = self._task.result()
        if found.state is not State.DRAINING or found.reason is not Reason.NONE:
            self._miss(recording, _why_none(found))
        if found.state is State.DRAINING:
            self.sample_seconds = _sample_seconds(found, self._wanted.hz)
            self.reader = next(iter(found.versions), "")
            _fill(recording)
            recording.files += found.files
            (recording.not_honoured if self._wanted.asked else recording.warnings).extend(found.not_honoured)
            recording.warnings += found.warnings
            recording.cost = replace(recording.cost, detail=f"{recording.cost.detail}; samples: {found.cost.detail}")
            recording.versions |= found.versions

    def _miss(self, recording: Recording, why: str) -> None:
        if self._wanted.asked:
            recording.not_honoured.append(f"samples: {why}")
        elif is_empty(recording) or (self._wanted.missed and not self._wanted.if_quiet):
            miss(recording, why)

    async def end(self) -> None:
        """End it, whatever it still does; the process runs on as before."""
        self._stop.set()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def _why_none(found: Recording) -> str:
    """The end of the window stops a sampler, as a person would."""
    return TOO_LATE if found.state is State.CANCELLED and found.message != TOO_SHORT else found.message


def miss(recording: Recording, why: str) -> None:
    """Samples that nobody asked for are missing: of an empty recording that is a part of why it is empty."""
    if recording.state is State.FAILED and recording.reason is Reason.NO_FILE:
        recording.message = f"{recording.message}; no samples either: {why}".rstrip(". ")
    elif recording.state is State.DRAINING:
        recording.warnings.append(f"samples: {why}")


def _sample_seconds(found: Recording, hz: float) -> float | None:
    taken = hz * ((found.end_ns or 0) - (found.start_ns or 0)) / 1e9
    return found.cost.seconds / taken if found.cost.seconds is not None and taken >= 1 else None


def is_empty(recording: Recording) -> bool:
    """It took place, and nothing happened that it could record."""
    return recording.state is State.FAILED and recording.reason in (Reason.NO_FILE, Reason.TARGET_ENDED)


def _fill(recording: Recording) -> None:
    """An empty recording that has samples is none that failed."""
    if not is_empty(recording):
        return
    recording.state = State.DRAINING
    if recording.reason is Reason.NO_FILE:
        recording.reason, recording.message = Reason.NONE, ""
    if not any(said.startswith("torch: ") for said in recording.not_honoured):  # that says why there are no operators
        recording.warnings.append("no range or operator ran in the window: the trace has samples alone")
