"""Drives one target: performs what its state machine asks for and feeds it what happens.

Everything runs on the event loop's thread. Tasks and timers belong to the run
and end with it; the process counts as held until the source's task is really
over, because a source that was cancelled may still be in the target.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path

from profd.capture import machine as m
from profd.capture.failures import reason_of, sentence
from profd.capture.ports import Ended, Storing
from profd.capture.records import CaptureRecord, TargetRecord
from profd.errors import ProfdError
from profd.fairness.shares import Holder
from profd.fairness.threads import in_thread
from profd.gpu.sidecar import BeginSidecar
from profd.journal.journal import Journal, any_data
from profd.limits import PICKUP_BYTES_MAX, PICKUP_ESTIMATES_MAX, TRACE_FILE_BYTES_MAX
from profd.model.capture import Options, RawFile, Reason, Recording, State
from profd.sources.base import Session, Source
from profd.targets.load import LoadWatch
from profd.targets.process import Process
from profd.targets.resident import ResidentWatch
from profd.targets.run_times import Watch

log = logging.getLogger("profd.capture")


@dataclass(frozen=True, slots=True)
class RunParts:
    """The parts of the daemon that a run needs."""

    journal: Journal
    storing: Storing
    ended: Ended
    graces: m.Graces
    begin_sidecar: BeginSidecar


@dataclass(frozen=True, slots=True)
class SourceOrder:
    """The order to a source."""

    source: Source
    process: Process
    options: Options
    trace_bytes: int | None = None  # that the target was estimated to write

    @property
    def file_bytes_max(self) -> int:
        """The data of one file that is taken over from the target: some times the estimate, within the limits."""
        estimated = PICKUP_ESTIMATES_MAX * (self.trace_bytes or 0)
        return min(TRACE_FILE_BYTES_MAX, max(PICKUP_BYTES_MAX, estimated))


class TargetRun:
    """One target from `begin` (or `retry`) to its terminal state.

    `on_change` is called after every event but a report of the same once more, `on_recorded` when raw files are there
    to be kept, `on_settled` once the target is terminal, `on_released` when nothing of ours is in the process any more.
    """

    def __init__(
        self,
        capture: CaptureRecord,
        target: TargetRecord,
        parts: RunParts,
        *,
        on_change: Callable[[], None],
        on_recorded: Callable[[], None],
        on_settled: Callable[[], None],
        on_released: Callable[[], None],
    ) -> None:
        self.target = target
        self._capture = capture
        self._parts = parts
        self._machine = m.Machine(target, parts.graces, open_ended=capture.open_ended)
        self._on_change = on_change
        self._on_recorded = on_recorded
        self._on_settled = on_settled
        self._on_released = on_released
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._order: SourceOrder | None = None
        self._session: Session | None = None
        self._recording: asyncio.Task[None] | None = None
        self._death: asyncio.Task[None] | None = None
        self._others: set[asyncio.Task[None]] = set()
        self._timers: dict[m.Timer, asyncio.TimerHandle] = {}
        self.before = target.state  # the last event
        self.passed = [(target.state, time.time_ns())]  # states, and when each began: of this run
        self.recorded_seconds = 0.0  # by our clock, not by what is told of it
        self._since: float | None = None  # it records
        self._watch: Watch | None = None
        self.load: LoadWatch | None = None
        self._resident: ResidentWatch | None = None

    @property
    def ignored(self) -> int:
        """Events that meant nothing when they came."""
        return self._machine.ignored

    def begin(self, order: SourceOrder, deadline_ns: int, stop_ns: int = 0) -> None:
        """Record with the chosen source; `deadline_ns` and `stop_ns` are its plan's."""
        self._order = order
        self._machine.can_stop = order.source.declaration.can_stop
        self.send(m.Begin(order.source.name, deadline_ns, stop_ns))

    def retry(self) -> None:
        """Decode the raw files in the journal again."""
        self.send(m.Retry())

    def stop(self, reason: Reason, message: str) -> None:
        """Ask the recording to end now."""
        self.send(m.Stop(reason, message))

    def abandon(self, reason: Reason, message: str) -> None:
        """End at once, whatever is lost."""
        self.send(m.Abandon(reason, message))

    async def wait(self) -> None:
        """Until none of its tasks is left."""
        while tasks := {task for task in (self._recording, *self._others) if task and not task.done()}:
            await asyncio.wait(tasks)

    def send(self, event: m.Event) -> None:
        """Feed the machine and do what it says."""
        self.before, doing = self.target.state, self.target.doing
        actions = self._machine.handle(event)
        if self.target.state is not self.before:
            self.passed.append((self.target.state, time.time_ns()))
        self._measure()
        for action in actions:
            self._perform(action)
        says_the_same = isinstance(event, m.Report) and (self.target.state, self.target.doing) == (self.before, doing)
        if not says_the_same:  # as sources do whenever they hear of their process
            self._on_change()

    def _measure(self) -> None:
        if self.target.state is not State.RECORDING:
            self.recorded_seconds += 0.0 if self._since is None else self._loop.time() - self._since
            self._since = None
            for watch in (self._watch, self.load, self._resident):
                if watch is not None:
                    watch.end()
        elif self._since is None:
            self._since = self._loop.time()
            for watch in (self._watch, self.load, self._resident):
                if watch is not None:
                    watch.begin()

    def _perform(self, action: m.Action) -> None:
        match action:
            case m.StartRecording():
                self._start_recording()
            case m.SignalStop():
                if self._session is not None:
                    self._session.stop.set()
            case m.AbortRecording():
                if self._recording is not None:
                    self._recording.cancel()
            case m.StartTimer(timer, after_ns):
                if timer not in self._timers:  # the earlier deadline holds
                    expired = m.Expired(timer)
                    self._timers[timer] = self._loop.call_later(after_ns / 1e9, self.send, expired)
            case m.Store(recording):
                self._on_recorded()
                self.spawn(self._store(recording))
            case m.Settle():
                self._settle()

    def _settle(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for task in self._others:
            if task is not asyncio.current_task(self._loop):
                task.cancel()
        self._on_settled()
        # When its own task says the end, the source has returned.
        if self._recording in (None, asyncio.current_task(self._loop)) or self._recording.done():
            self._on_released()
        else:
            self._recording.add_done_callback(lambda _task: self._on_released())

    def spawn(self, coroutine: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """A task of its own: `wait` waits for it, and the end of the run is its end."""
        task = self._loop.create_task(coroutine)
        self._others.add(task)
        task.add_done_callback(self._others.discard)
        return task

    def _start_recording(self) -> None:
        if self._order is not None:
            self._watch, self.load = Watch(self._order.process), LoadWatch(self._order.process)
            self._resident = ResidentWatch(self._order.process)
            self._recording = self._loop.create_task(self._record(self._order))
            self._death = self.spawn(self._watch_death())

    async def _watch_death(self) -> None:
        await self._parts.ended(self.target.process)
        self.send(m.ProcessEnded())

    async def _record(self, order: SourceOrder) -> None:
        """The machine gets exactly one Recorded or Broke, whatever the source does (none after an abort)."""
        source, journal = order.source, self._parts.journal
        key = self._capture.id, self.target.process
        making = asyncio.ensure_future(asyncio.to_thread(journal.directory, *key))
        claim = journal.claim(self._capture.owner_uid)
        self._session = Session(
            *(self._capture.id, journal.path(*key), asyncio.Event(), self._report),
            keep=self._keep,
            claim=claim,
            file_bytes_max=order.file_bytes_max,
            together=len(self._capture.targets),
        )
        if source.declaration.self_disarming:
            made = asyncio.shield(making)  # who gives up waiting does not end the making
            made.add_done_callback(_seen)
            self._session.made = made
        elif not await self._is_made(making):
            return
        if self._machine.stopping:  # between the two steps of the loop
            self._session.stop.set()
        sidecar = self._parts.begin_sidecar(order.process, order.options)
        try:
            recording = await self._recorded(order, self._session, making)
            if sidecar is not None:
                # Seconds of CPU time for ten minutes of eight GPUs: in threads that are the user's share.
                user = Holder(order.process.uid, reserved=order.process.uid == 0)
                await in_thread(user, sidecar.finish, recording, journal.path(*key))
        except OSError as error:
            self.send(m.Broke(reason_of(error), sentence(error, source.name)))
        except ProfdError as error:
            self.send(m.Broke(Reason.SOURCE_FAILED, str(error)))
        except Exception as error:
            log.exception("source failed", extra={"source": source.name, "capture": self._capture.id})
            self.send(m.Broke(Reason.SOURCE_FAILED, f"{source.name} failed: {error!r}; this is a fault of profd"))
        else:
            recording.waterfall = recording.waterfall or list(self._session.phases)
            if recording.files and self._watch and self.load and self._resident:
                recording.run_times = replace(await self._watch.times(), names=recording.thread_names)
                recording.load = await self.load.load()
                recording.resident = await self._resident.resident()
            await self._hear_of_death(recording)
            self.send(m.Recorded(recording))
        finally:
            claim.close()
            if sidecar is not None:
                sidecar.drop()

    async def _recorded(self, order: SourceOrder, session: Session, making: asyncio.Future[Path]) -> Recording:
        """The source's recording. A directory that came after its target is over would be nobody's."""
        try:
            return await order.source.record(order.process, order.options, session)
        finally:
            await asyncio.wait({making})

    async def _is_made(self, making: asyncio.Future[Path]) -> bool:
        try:
            await making
        except (OSError, ProfdError) as error:
            self.send(m.Broke(reason_of(error), sentence(error, "the journal")))
            return False
        return True

    async def _hear_of_death(self, recording: Recording) -> None:
        """A source that fails because its target is ending may be faster than the kernel's word of it."""
        if recording.reason is Reason.NO_FILE and recording.end_ns is not None:
            return  # it took place to its end, and nothing happened
        failed = recording.state is State.FAILED or recording.reason is not Reason.NONE
        if failed and recording.reason in m.VAGUE and self._death is not None:
            await asyncio.wait({self._death}, timeout=self._parts.graces.hearing_ns / 1e9)

    def _report(self, state: State, doing: str) -> None:
        """Sources have threads of their own; the machine has one."""
        event = m.Report(state, doing)
        if threading.get_ident() == self._thread:
            self.send(event)
        else:
            self._loop.call_soon_threadsafe(self.send, event)

    def _keep(self, files: list[RawFile]) -> None:
        self.target.keep(files)
        self._on_recorded()

    async def _store(self, recording: Recording) -> None:
        try:
            trace = await self._parts.storing.store(self._capture, self.target, recording.files)
        except (OSError, ProfdError) as error:
            if not await asyncio.to_thread(any_data, recording.files):
                self.target.keep([])  # whatever became of them: nobody is sent to retry without
            self.send(m.Broke(reason_of(error), sentence(error, "the store")))
        except Exception as error:
            log.exception("storing failed", extra={"capture": self._capture.id, "pid": self.target.pid})
            self.send(m.Broke(Reason.STORE_UNAVAILABLE, f"storing failed: {error!r}; this is a fault of profd"))
        else:
            self.send(m.Stored(trace))


def _seen(done: asyncio.Future[Path]) -> None:
    """Its source may have ended before it looked: what went wrong is of no interest then."""
    if not done.cancelled():
        done.exception()
