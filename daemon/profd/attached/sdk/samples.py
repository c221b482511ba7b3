"""Samples beside a recording (`--samples 100hz`): the cheap alternative to tracing every Python call.

The daemon's sampler reads the stacks of a process from outside while the process records itself; both end up in one
trace, the samples on tracks beside the threads. What is missing of the samples takes nothing from the recording; where
no event was recorded at all, samples are the trace.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from profd.errors import ProfdError
from profd.model.capture import Options, Reason, Recording, State
from profd.sources.base import Session, Source
from profd.targets.process import Process

STOP_SECONDS: Final = 15.0  # for the sampler to write what it saw, once the window is over
RISK: Final = "samples: the process is read from outside and not paused; that takes CPU time of this host"


def why_not(sampler: Source | None, process: Process, options: Options) -> str:
    """Why a recording would have no samples beside it; empty: it would."""
    if sampler is None:
        return "this source records no stacks beside its events"
    offer = sampler.offer(process)
    if not offer.can:
        return f"{offer.reason} {offer.fix}".strip()
    return sampler.plan(process, _of_samples(options)).refusal


def in_part(sampler: Source | None, process: Process, options: Options) -> str:
    """What of the asked rate the sampler does not keep; empty: nothing."""
    return sampler.plan(process, _of_samples(options)).unserved.get("sample_hz", "") if sampler is not None else ""


def _of_samples(options: Options) -> Options:
    """What of a request concerns the sampler; how long, where iterations decide, its stop says."""
    return Options(duration_ns=options.duration_ns, start_at_ns=options.start_at_ns, sample_hz=options.sample_hz)


class Samples:
    """The sampler at work, from the moment this is made. To be ended, whatever happens."""

    def __init__(
        self, sampler: Source, process: Process, options: Options, session: Session, *, asked: bool = True
    ) -> None:
        """Not `asked`: nobody did, and where there are none nothing is missing of what was."""
        self._asked = asked
        self._stop = asyncio.Event()
        own = Session(session.capture, session.directory, self._stop, lambda state, doing: None)
        self._made = session.made
        self._task = asyncio.create_task(self._record(sampler, process, _of_samples(options), own))

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
            return await sampler.record(process, options, session)
        except (OSError, ProfdError) as error:
            return Recording(State.FAILED, Reason.SOURCE_FAILED, str(error))

    async def join(self, recording: Recording) -> None:
        """Put the samples into a recording that is over; what is missing of what was asked is not honoured."""
        self._stop.set()
        if recording.state is not State.DRAINING and not _is_empty(recording):
            return
        done, _ = await asyncio.wait([self._task], timeout=STOP_SECONDS)
        if not done:
            self._miss(recording, f"they were not written within {STOP_SECONDS:.0f} s")
            return
        found = self._task.result()
        if found.state is not State.DRAINING or found.reason is not Reason.NONE:
            self._miss(recording, found.message)
        if found.state is State.DRAINING:
            _fill(recording)
            recording.files += found.files
            recording.warnings += found.warnings
            recording.versions |= found.versions

    def _miss(self, recording: Recording, why: str) -> None:
        (recording.not_honoured if self._asked else recording.warnings).append(f"samples: {why}")

    async def end(self) -> None:
        """Whatever it still does; the process runs on as before."""
        self._stop.set()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def _is_empty(recording: Recording) -> bool:
    """It took place, and nothing happened that it could record."""
    return recording.state is State.FAILED and recording.reason in (Reason.NO_FILE, Reason.TARGET_ENDED)


def _fill(recording: Recording) -> None:
    """An empty recording that has samples is none that failed."""
    if not _is_empty(recording):
        return
    recording.state = State.DRAINING
    if recording.reason is Reason.NO_FILE:
        recording.reason, recording.message = Reason.NONE, ""
    recording.warnings.append("no range or operator ran in the window: the trace has samples alone")
