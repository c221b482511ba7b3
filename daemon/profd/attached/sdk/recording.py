"""One recording of an attached process, from ARM to RELEASE.

    ARM -> ARMED -> (the streamer drains) -> STOP -> STOPPED -> the rest is drained -> RELEASE

Events that the process had published in its arena are kept, whatever happens to the process: the daemon holds the
arena's memory by its descriptor.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from profd.attached.agents.agent import Agent, Arm, Armed, ArmOrder, NotArmed
from profd.attached.agents.protocol import Status
from profd.attached.sdk import handover, orphans, planning, torch_file
from profd.attached.sdk.guard import ABORT, OverheadGuard, kinds
from profd.attached.sdk.handover import SdkParts
from profd.attached.sdk.outcome import Ending, Facts, cost, explain, explain_gpu, how_timed, steps, versions
from profd.attached.sdk.ports import Drain, Intake
from profd.gpu.lease_keeper import LeaseKeeper
from profd.gpu.leases import Lease
from profd.gpu.states import GpuState
from profd.kernel.freeing import let_go
from profd.limits import CAPTURE_WINDOW_MAX_NS
from profd.model.capture import Loss, Options, Phase, RawFile, Reason, Recording, State
from profd.sources.base import Session
from profd.targets import first_looks
from profd.targets.identity import Accepted, Standing
from profd.targets.pickup import NotTaken
from profd.targets.process import Process

MISSED: Final = "missed: "  # begins what an agent says of a step that has begun already
_SILENT_SECONDS: Final = 3.0  # without a STATUS, which comes every second


class SdkRecorder:
    """Records one process once. `run` is called once."""

    def __init__(
        self,
        agent: Agent,
        process: Process,
        options: Options,
        session: Session,
        parts: SdkParts,
        leases: LeaseKeeper,
        lease: Lease | None,
        accepted: Accepted,
    ) -> None:
        """`lease`: of the process, where CUPTI is used; it stays the caller's to end, as `accepted` is to close."""
        self._agent = agent
        self._process = process
        self._options = options
        self._session = session
        self._parts = parts
        self._hello = agent.hello
        self._leases = leases
        self._lease = lease
        self._accepted = accepted
        self._epoch = lease.epoch if lease is not None else secrets.randbits(63) | 1  # 0 means none
        self._began_ns = time.time_ns()
        self._phases: list[Phase] = []
        self._mark_ns = self._ordered_ns = time.monotonic_ns()
        limit = options.max_overhead
        self._guard = None if limit is None else OverheadGuard(limit, kinds(options, agent.hello))
        self._cut = ""  # why the file of torch's own profiler is not all that it wrote
        self._intake: Intake | None = None
        self.status = Status()  # the last one
        self.events = 0  # that arrived
        self._arm: Arm | None = None

    async def run(self) -> Recording:
        """Record; whatever happens, the agent is told to stop, and the arena let go of."""
        await self._reach_start()
        standing = await first_looks.standing(self._accepted, self._session.together)
        if self._session.stop.is_set():
            return Recording(State.CANCELLED, Reason.CANCELLED_BY_USER, "stopped before the window began")
        if standing is Standing.CHANGED:
            reason = Reason.TARGET_SILENT if self._accepted.silent else Reason.TARGET_ENDED
            return Recording(State.FAILED, reason, self._accepted.moved_on())
        self._session.report(State.ARMED, "arming the process")
        self._ordered_ns = time.monotonic_ns()
        if self._lease is not None:
            self._leases.arm(self._lease, self._hello.incarnation)
        async with contextlib.AsyncExitStack() as ending:  # a slow disk must not keep us from letting go of the process
            try:
                # Before anything of ours is on the disk: it records meanwhile, and disarms itself should we die.
                arm = self._agent.arm(self._order())
                try:
                    intake = await self._expected(ending)
                except BaseException:
                    self._agent.give_up(arm)
                    raise
                armed = await self._agent.answer(arm, planning.ARM_SECONDS)
                return await self._record(armed, arm, intake)
            except NotArmed as error:
                return self._not_armed(error)
            finally:
                self._agent.stop()  # nothing, if it has been released
                self._agent.release()

    async def compare(self, recording: Recording) -> None:
        """Wait some seconds for all steps after it, and put what they say into its cost."""
        if self._arm is None or self._arm.stopped is None or not self.status.step_ns:
            return
        window_ns = (recording.end_ns or 0) - (recording.start_ns or 0)
        told = cost(self.status, window_ns, answered=True).detail
        self.status = await handover.see_all_steps(self._arm)
        found = cost(self.status, window_ns, answered=True)
        more = recording.cost.detail.removeprefix(told)  # of samples beside it
        recording.cost = replace(found, detail=found.detail + more)

    @property
    def arrived(self) -> int:
        """Events so far."""
        return self._intake.events if self._intake is not None else 0

    async def _expected(self, ending: contextlib.AsyncExitStack) -> Intake:
        """Where its chunks go. Raises what `Session.made`, `Ingest.expect` and `orphans.note` raise."""
        if self._session.made is not None:
            await self._session.made
        incarnation, directory = self._hello.incarnation, self._session.directory
        intake = await self._parts.ingest.expect(incarnation, self._epoch, self._process.uid, directory)
        ending.enter_context(contextlib.closing(intake))
        noting = asyncio.ensure_future(asyncio.to_thread(orphans.note, intake.path, incarnation, self._epoch))
        ending.push_async_callback(_forget, intake.path, noting)
        await asyncio.shield(noting)
        return intake

    async def _record(self, armed: Armed, arm: Arm, intake: Intake) -> Recording:
        self._session.keep([RawFile(str(intake.path), "chunks")])
        self._intake = intake
        try:
            drain = self._parts.streamers.drain(self._process.uid, self._hello.incarnation, self._epoch, armed.fd)
        finally:
            let_go(armed.fd)
        with contextlib.closing(drain):
            self._phase("arm", int(arm.armed_at * 1e9))  # it records from then on, though our files may not be ready
            ending = await self._window(arm, intake, drain)
            self._phase("window")
            self._session.report(State.DRAINING, "taking over what was recorded")
            seconds = planning.stop_seconds(self._options, self._agent.hello)
            target_died = not await handover.stop(self._agent, arm, seconds)
            drain.may_be_written = target_died and arm.gone != ""
            self._phase("stop")
            async with self._recalling(arm) as recalling:
                file = await self._torch_file(arm)
                end_ns = time.time_ns()
                whole = await handover.empty(drain, intake, target_died=target_died)
                await handover.see_steps(arm)
                collectives = await recalling
            self._phase("drain")
            self._agent.release()
            self._arm, self.status, self.events = arm, arm.status, intake.events
            recording = self._recording(armed, arm, intake, end_ns)
            _add(recording, file, intake)
            self._add_missed(recording, armed, arm)
            facts = Facts(
                ending=ending,
                gone=arm.gone == "",
                cut_off=arm.gone or "",
                stopped=arm.stopped.reason if arm.stopped is not None else None,
                events=intake.events + isinstance(file, RawFile),
                whole=whole,
                intake_failure=intake.failure,
                drain_problem=drain.problem,
                streamer_restarts=drain.restarts,
                max_overhead=self._options.max_overhead,
                stacks=self._options.stacks,
            )
            explain(recording, facts)
            _remember(recording, collectives)
            if self._cut and recording.reason is Reason.NONE:
                recording.reason, recording.message = Reason.TRUNCATED, self._cut
            self._meet_gpu(recording)
            return recording

    @contextlib.asynccontextmanager
    async def _recalling(self, arm: Arm) -> AsyncIterator[asyncio.Future[RawFile | str | None]]:
        """What its flight recorder remembers is asked at once: the job goes on, and the recorder forgets."""
        recalling = asyncio.ensure_future(self._parts.recalls.take(self._agent, self._session, arm))
        try:
            yield recalling
        finally:
            recalling.cancel()
            await asyncio.wait({recalling})

    async def _torch_file(self, arm: Arm) -> RawFile | NotTaken | None:
        """The file of torch's own profiler, where it recorded."""
        if arm.stopped is None or not arm.status.file:
            return None
        taken = await torch_file.take(arm.status.file, self._accepted, self._session)
        if isinstance(taken, NotTaken):
            return taken
        file, self._cut = taken
        return file

    def _order(self) -> ArmOrder:
        return ArmOrder(
            epoch=self._epoch,
            arena_bytes=self._parts.arena_bytes,
            options=planning.words(
                self._options,
                self._hello.can,
                cuda=self._records_cuda(),
                collecting=self._parts.collecting,
                torch=planning.has_torch(self._hello),
            ),
            window_ns=self._options.duration_ns,
            iterations=self._options.iterations,
            begin_step=self._options.begin_step,
            at_least_ns=self._options.at_least_ns,
            max_overhead=self._options.max_overhead,
        )

    def _records_cuda(self) -> bool:
        """A collector alone has nothing else to record; profclient loads it where there is CUDA."""
        can = self._hello.can
        return "cuda" in can and (self._process.cuda or "ranges" not in can)

    async def _reach_start(self) -> None:
        """Wait for the agreed start, or until the capture is stopped."""
        ahead = 0.0
        if self._options.start_at_ns is not None:
            ahead = (self._options.start_at_ns - time.time_ns()) / 1e9
        if ahead > 0:
            self._session.report(State.ARMED, "waiting for the agreed start")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._session.stop.wait(), ahead)
        self._mark_ns = time.monotonic_ns()

    async def _window(self, arm: Arm, intake: Intake, drain: Drain) -> Ending:
        """Until the window is over, for whatever reason."""
        window_ns = self._options.duration_ns or CAPTURE_WINDOW_MAX_NS
        end = arm.armed_at + window_ns / 1e9
        judged: Status | None = None
        silent = False
        async with _waiting(self._session.stop, drain.ended) as waiting:
            while True:
                arm.news.clear()
                ending = self._ending(arm, intake, drain, end)
                if ending is None and arm.status is not judged:
                    judged = arm.status
                    self._heard()
                    ending = self._keep_within_limit(judged)
                if ending is not None:
                    return ending
                self._tell(arm, silent=silent)
                left = end - time.monotonic()
                happened = await waiting.any_of(arm.news, min(left, _SILENT_SECONDS))
                silent = not happened and left > _SILENT_SECONDS

    def _ending(self, arm: Arm, intake: Intake, drain: Drain, end: float) -> Ending | None:
        if arm.gone is not None:
            return Ending.GONE
        if arm.stopped is not None:
            return Ending.ITSELF
        if self._session.stop.is_set():
            return Ending.ASKED
        if intake.failure or drain.ended.is_set():
            return Ending.BROKEN
        return Ending.WINDOW if time.monotonic() >= end else None

    def _keep_within_limit(self, status: Status) -> Ending | None:
        elapsed_s = (time.monotonic_ns() - self._ordered_ns) / 1e9
        verdict = self._guard.judge(status, elapsed_s) if self._guard is not None else ""
        if verdict == ABORT:
            return Ending.COSTLY
        if verdict:
            self._agent.limit(verdict)
        return None

    def _meet_gpu(self, recording: Recording) -> None:
        """The collector's findings go into the recording, and into the table of who holds CUPTI where."""
        report = self.status.gpu
        recording.gpu = dict(report.facts)
        if report.state is GpuState.OK:
            self._leases.armed(self._process.id)
        elif report.state is not None and report.state.held:
            self._leases.met_foreign(self._process.id, report.holder)
        explain_gpu(recording, report)

    def _heard(self) -> None:
        """The process runs, and says so."""
        if self._lease is not None:
            self._leases.renew(self._lease)

    def _add_missed(self, recording: Recording, armed: Armed, arm: Arm) -> None:
        """Add the overhead that the guard could not prevent."""
        if self._guard is None or arm.stopped is None:
            return
        took_ns = (arm.stopped.last_ns or 0) - (arm.status.first_ns or armed.first_ns)
        missed = self._guard.missed(arm.status, took_ns / 1e9)
        if missed:
            recording.warnings.append(missed)

    def _left_out(self) -> list[str]:
        return self._guard.sentences() if self._guard is not None else []

    def _not_begun(self, status: Status) -> list[str]:
        if not status.awaits_step:
            return []
        return [f"at_step: step {self._options.begin_step} had not begun at the end; {status.at_step} steps had"]

    def _tell(self, arm: Arm, *, silent: bool) -> None:
        doing = self._doing(arm.status)
        if self._guard is not None and self._guard.dropped:
            doing += f", without {', '.join(each.kind for each in self._guard.dropped)}"
        self._session.report(State.RECORDING, "the process is silent; is it stopped?" if silent else doing)

    def _doing(self, status: Status) -> str:
        wanted = self._options.iterations
        if status.awaits_step:
            return f"waiting for step {self._options.begin_step}; {status.at_step} have begun"
        return f"step {min(status.steps, wanted)} of {wanted}" if wanted else "the window is open"

    def _recording(self, armed: Armed, arm: Arm, intake: Intake, end_ns: int) -> Recording:
        last_ns = arm.stopped.last_ns if arm.stopped is not None else None
        start_ns = arm.status.first_ns or armed.first_ns or self._began_ns
        end_ns = last_ns or end_ns
        said = (*armed.not_honoured, *arm.status.not_honoured)
        return Recording(
            files=[RawFile(str(intake.path), "chunks")],
            start_ns=start_ns,
            end_ns=end_ns,
            lost=list(intake.losses),
            not_honoured=[
                *(each for each in said if not planning.unasked(each, self._options, self._hello)),
                *self._left_out(),
                *self._not_begun(arm.status),
                *(self._parts.collecting.refused() if self._records_cuda() else ()),
            ],
            warnings=list(how_timed(arm.status)),
            waterfall=list(self._phases),
            cost=cost(arm.status, end_ns - start_ns, answered=arm.stopped is not None),
            steps=steps(arm.status),
            versions=versions(self._hello),
            thread_names=dict(arm.status.thread_names),
        )

    def _not_armed(self, error: NotArmed) -> Recording:
        if error.gone:
            return Recording(State.FAILED, Reason.TARGET_ENDED, "the process ended before it was armed")
        if error.silent:
            return Recording(
                State.FAILED,
                Reason.TARGET_SILENT,
                f"{error}: is it stopped? (kill -CONT {self._process.id.pid}) For samples: --source pyspy",
            )
        if str(error).startswith(MISSED):
            return Recording(State.REFUSED, Reason.STEP_MISSED, str(error))
        return Recording(State.REFUSED, Reason.SOURCE_FAILED, f"the process could not be armed: {error}")

    def _phase(self, name: str, end_ns: int | None = None) -> None:
        """The phase is over: now, or at this moment of the monotonic clock."""
        now = time.monotonic_ns() if end_ns is None else end_ns
        self._phases.append(Phase(name, now - self._mark_ns))
        self._mark_ns = now


def _add(recording: Recording, file: RawFile | NotTaken | None, intake: Intake) -> None:
    """Torch's own file to the recording; without ranges beside it the journal file has nothing to say."""
    if isinstance(file, NotTaken):
        recording.warnings.append(f"what torch's own profiler recorded could not be taken: {file.message}")
        recording.lost.append(Loss("source", "file_refused", 1))
    elif file is not None:
        recording.files = [*(recording.files if intake.events else []), file]


def _remember(recording: Recording, said: RawFile | str | None) -> None:
    """Collectives that its flight recorder remembers, to the recording; alone they are none."""
    if isinstance(said, str):
        recording.warnings.append(said)
    elif said is not None and recording.files:
        recording.files.append(said)


async def _forget(file: Path, noting: asyncio.Future[None]) -> None:
    """A caller that gives up waiting for a note does not end its writing."""
    await asyncio.wait({noting})
    await asyncio.to_thread(orphans.forget, file)


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
