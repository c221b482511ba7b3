"""The source `sdk`: processes that have attached themselves with `profclient.attach()` or `profctl run`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Final

from profd.attached.agents.agent import Agent, Arm
from profd.attached.agents.protocol import Hello, Left, Status
from profd.attached.agents.registry import AgentRegistry
from profd.attached.sdk import orphans, planning, samples
from profd.attached.sdk.handover import SdkParts, count_left, take_over
from profd.attached.sdk.operators import Operators
from profd.attached.sdk.pace import Paces
from profd.attached.sdk.recording import SdkRecorder
from profd.errors import Exhausted, ProfdError
from profd.gpu.holders import Holder, HolderKind
from profd.gpu.lease_keeper import LeaseKeeper
from profd.gpu.leases import Held, Lease
from profd.journal.journal import Key
from profd.kernel.freeing import let_go
from profd.model.capture import Cost, Loss, Options, ProgramSteps, Reason, Recording, State, option_word
from profd.model.newest import Newest
from profd.observers.observers import Observers
from profd.sources.base import Offer, Plan, Session, Source
from profd.sources.declaration import Declaration
from profd.targets import procfs
from profd.targets.first_looks import accept
from profd.targets.process import Process, ProcessId

Returned = Callable[[str, ProcessId], None]
"""Hears of a capture's process that an earlier daemon was recording, and whose data is being taken over."""

Recovered = Callable[[str, ProcessId, list[Loss] | None], None]
"""Hears that it has been, as far as it goes, and of what it lost; None: not all of it came."""

Compared = Callable[[str, ProcessId, Cost], None]
"""Hears what a capture cost its process, once the seconds after it have been seen, too."""

CUPTI_PYTHON_RISK: Final = (
    "CUDA is recorded through cupti-python (gpu.collector): slow, and where a thread has the GIL and calls CUDA the "
    "job can stand still for good"
)
CUPTI_STAYS: Final = (
    "CUPTI stays in the process after its recording: its CUDA calls take longer until it ends (a step that is bound by "
    "launches up to 1.5 times as long, docs/gpu.md)"
)
CUPTI_WAITS: Final = (
    "the first recording of CUDA in a process waits for the work that is queued on the GPU, and the program's CUDA "
    "calls with it, not where `profctl run --cuda` started the process (docs/gpu.md)"
)
CUPTI_DETACHES: Final = (
    "CUPTI is taken out of the process at the end (gpu.detach): a program dies of it that replays CUDA graphs which "
    "this capture does not see"
)
_COLLECTOR: Final = "libprofd_cupti.so"  # prepares CUPTI where CUDA's driver loads it
_STEPS_SECONDS: Final = 1.0  # for an agent's answer, whose thread needs no GIL
_HISTORY: Final = 1024
_CORES: Final = os.cpu_count() or 1
# Agents look 1, 3 and 7 s after their daemon has gone: after a restart of 2 s all are back before this.
BACK_WAIT_SECONDS: Final = 5.0
_ATTACH: Final = "call profclient.attach() in it, or start it with: profctl run -- COMMAND"

log = logging.getLogger("profd.sdk")


@dataclass(frozen=True, slots=True)
class SdkStatistics:
    """Counts for metrics."""

    attached: int = 0
    armed: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)  # connections, by why
    seconds: Mapping[str, float] = field(default_factory=dict)  # spent recording, by protocol.SOURCES or "all"
    steps: Mapping[str, float] = field(default_factory=dict)  # median seconds: during, after; summed
    stepping: int = 0  # recordings that `steps` sums up
    held: int = 0  # connections whose descriptors cannot be closed yet


class SdkSource(Source):
    """Ranges, operators and Python calls, recorded by the process itself and streamed out while it runs."""

    declaration: ClassVar[Declaration] = planning.DECLARATION

    def __init__(
        self,
        registry: AgentRegistry,
        parts: SdkParts,
        socket: Path,
        journal: Path,
        leases: LeaseKeeper,
        sampler: Source | None = None,
        observers: Observers | None = None,
    ) -> None:
        """`socket` is where agents connect, for messages: whoever listens there feeds the registry.
        `journal` is where an earlier daemon may have left recordings that go on.
        `sampler` is for `--samples`, and `observers` brings observers of PyTorch's operators; whoever made them opens
        and closes them.
        """
        self._operators = Operators(observers)
        self._leases = leases
        self._sampler = sampler
        self._paces = Paces()
        self.on_returned: Returned = lambda capture, process: None
        self.on_recovered: Recovered = lambda capture, process, losses: None
        self.on_compared: Compared = lambda capture, process, cost: None
        self._seconds: defaultdict[str, float] = defaultdict(float)  # spent recording in all targets so far, by source
        self._steps: defaultdict[str, float] = defaultdict(float)
        self._stepping = 0
        self._registry = registry
        self._parts = parts
        self._socket = socket
        self._running: dict[ProcessId, str] = {}  # to the capture
        # Of the last trace of a process with like options.
        self._rates = Newest[tuple[ProcessId, frozenset[str]], planning.EarlierTrace](_HISTORY)
        self._journal = journal
        self._orphans: dict[orphans.Key, orphans.Orphan] = {}
        self._working: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Take over what comes back from before."""
        self._orphans = await asyncio.to_thread(orphans.find, self._journal)
        self._registry.on_orphan = self._came_back
        self._registry.on_left = self._came_late

    def configure(self, arena_bytes: int, collecting: planning.Collecting) -> None:
        """For recordings that begin from now on."""
        self._parts = replace(self._parts, arena_bytes=arena_bytes, collecting=collecting)

    def orphaned(self) -> set[Key]:
        """Processes that an earlier daemon was recording, with their captures, and that may come back."""
        return {(orphan.capture, orphan.process) for orphan in self._orphans.values()}

    async def close(self) -> None:
        """End what is being taken over; its data stays for a retry."""
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    async def back(self, processes: Sequence[Process]) -> bool:
        """Wait for processes that the daemon before this one knew: until then only samples can be had of them."""
        return await self._registry.returning.wait([process.id for process in processes], BACK_WAIT_SECONDS)

    def offer(self, process: Process) -> Offer:
        """Whether it is attached and free."""
        agent = self._registry.get(process.id)
        if agent is None:
            if why := self._registry.returning.why(process.id):
                return Offer(False, why, "ask again then", Reason.TARGET_SILENT, busy=True)
            return Offer(False, "it is not attached", _ATTACH, concerns=process.python)
        if not records_ranges(agent):
            fix = "its CUDA events come with --source cuda"
            return Offer(False, "only CUDA's collector is in it", fix, concerns=False)
        return self._free(process, agent)

    def _free(self, process: Process, agent: Agent) -> Offer:
        """Whether nothing is in the way of recording it now."""
        capture = self._running.get(process.id)
        if capture:
            return Offer.recording(capture, process.id.pid)
        if agent.uid != process.uid:
            # It called a program of another user's, or gave up root: whoever attached must not speak for it.
            return Offer(
                False,
                f"what attached in it was uid {agent.uid}'s, and it is uid {process.uid}'s now",
                "call profclient.attach() after it has changed its user",
                Reason.NOT_PERMITTED,
            )
        unable = self._parts.streamers.why_not()
        if unable:
            fix = "install profd where every user may read it (docs/security.md, Streamers)"
            return Offer(False, unable, fix, Reason.NOT_PERMITTED)
        if agent.armed:
            return Offer(
                False,
                "what an earlier capture recorded is still being taken over",
                "ask again in some seconds",
                Reason.CAPTURE_RUNNING,
                busy=True,
            )
        if process.stopped:
            return Offer(False, "the process is stopped (state T)", "continue it: kill -CONT", Reason.TARGET_SILENT)
        held = self._leases.held(process.id) if _uses_cupti(process, agent) else None
        if held is not None:
            return Offer.held(held)
        return Offer(True, after=_better(process))

    async def prepare(self, processes: Sequence[Process]) -> None:
        """Which torch those have that have no observer of it."""
        agents = ((process, self._registry.get(process.id)) for process in processes)
        await self._operators.look([(process, agent.hello) for process, agent in agents if agent is not None])

    def plan(self, process: Process, options: Options) -> Plan:
        """Yield and cost of a recording; events from an earlier trace of the process with like options."""
        agent = self._registry.get(process.id)
        if agent is None:
            return Plan(False, "it is not attached", Reason.NO_SOURCE)
        rate = self._rates.get((process.id, planning.alike(options)))
        most = self._parts.arena_bytes
        arena = self._parts.sizes.find(process.id.pid, most, uid=process.uid, force=options.force)
        if arena.refusal:
            return Plan(False, arena.refusal, Reason.OVER_LIMIT)
        hello = self._operators.hello(process, agent.hello)
        found = planning.plan(options, hello, arena.bytes, rate, self._operators.fix(process, hello))
        if arena.risk:
            found = replace(found, risks=(*found.risks, arena.risk))
        if self._parts.collecting.cupti_python and {"ranges", "cuda"} <= agent.hello.can:
            found = replace(found, risks=(*found.risks, CUPTI_PYTHON_RISK))
        if process.cuda and "cuda" in agent.hello.can:
            after = CUPTI_DETACHES if self._parts.collecting.detach else CUPTI_STAYS
            found = replace(found, risks=(*found.risks, after))
            if not process.environ.get("CUDA_INJECTION64_PATH", "").endswith(f"/{_COLLECTOR}"):
                found = replace(found, risks=(*found.risks, CUPTI_WAITS))
            found = replace(found, risks=(*found.risks, *self._parts.collecting.refused()))
        return self._with_samples(found, process, options, hello)

    async def steps(self, process: Process) -> ProgramSteps | None:
        """How far it says that it is."""
        agent = self._registry.get(process.id)
        return None if agent is None else await agent.steps(_STEPS_SECONDS)

    def _with_samples(self, plan: Plan, process: Process, options: Options, hello: Hello) -> Plan:
        self._paces.note_python(process.id, hello.python)
        wanted = samples.wanted(options, hello, lambda: 1.0, lambda: self._paces.beside(process.uid, process.id, 1))
        if wanted is None or not plan.serves:
            return plan
        missing = samples.why_not(self._sampler, process, options, wanted.hz)
        if missing:
            return replace(plan, unserved={**plan.unserved, "sample_hz": missing})
        if in_part := samples.in_part(self._sampler, process, options, wanted.hz):
            plan = replace(plan, unserved={**plan.unserved, "sample_hz": in_part})
        more_ns = round(samples.STOP_SECONDS * 1e9)
        return replace(
            plan,
            risks=(*plan.risks, samples.RISK) if wanted.asked else plan.risks,
            deadline_ns=plan.deadline_ns + more_ns,
            stop_ns=plan.stop_ns + more_ns,
        )

    @contextlib.asynccontextmanager
    async def _sampled(
        self, process: Process, options: Options, session: Session, hello: Hello
    ) -> AsyncIterator[samples.Samples | None]:
        """The samples beside a recording, where some are wanted and can be had."""
        threads = procfs.threads_of(process.id.pid)
        whose, among = (process.uid, process.id, threads), (session.together, session.capture)
        of_this = (*whose, *among)
        self._paces.note_python(process.id, hello.python)
        wanted = samples.wanted(options, hello, lambda: self._paces.hz(*of_this), lambda: self._paces.beside(*of_this))
        if wanted is None or self._sampler is None or samples.why_not(self._sampler, process, options, wanted.hz):
            yield None
            return
        if not wanted.asked:
            wanted = replace(wanted, cores=self._paces.cores(process.uid, *among))
        with contextlib.nullcontext() if wanted.asked else self._paces.holding(*whose, wanted.hz, session.capture):
            beside = samples.Samples(self._sampler, process, options, session, wanted)
            try:
                yield beside
            finally:
                await beside.end()
        if beside.reader:
            self._paces.note_reader(process.id, beside.reader)
        if beside.sample_seconds is not None:
            self._paces.learn(process.id, beside.sample_seconds)

    async def record(self, process: Process, options: Options, session: Session) -> Recording:
        """One trace of one process; see Source."""
        together = session.together
        with contextlib.ExitStack() as ending:
            accepted = ending.enter_context(contextlib.closing(await accept(process.id, process.uid, together)))
            with await self._parts.sizes.memory.ahead(process.uid, [process.id.pid], together):
                offer, plan = self.offer(process), self.plan(process, options)
                agent = self._registry.get(process.id)
                if agent is None or not offer.can or not plan.serves:
                    return _refused(offer, plan)
                arena_bytes = plan.memory_bytes or self._parts.arena_bytes
                ending.enter_context(self._parts.sizes.holding(process.id.pid, arena_bytes, process.uid))
            self._running[process.id] = session.capture
            begun = time.monotonic()
            ending.callback(self._running.pop, process.id)
            lease: Lease | None = None
            if _uses_cupti(process, agent):
                # Granted where nothing is awaited since `offer` found it free.
                lease = self._leases.take(process.id, Holder(HolderKind.PROFD, capture=session.capture))
                ending.callback(self._leases.end, lease)
            hello = self._operators.hello(process, agent.hello)
            fix = self._operators.fix(process, hello)
            parts = replace(self._parts, arena_bytes=arena_bytes)
            try:
                async with self._sampled(process, options, session, hello) as beside:
                    watched = session if beside is None else beside.around(session)
                    recorder = SdkRecorder(agent, process, options, watched, parts, self._leases, lease, accepted)
                    if beside is not None:
                        beside.arrived = lambda: recorder.arrived
                    recording = await recorder.run()
                    if beside is not None:
                        await beside.join(recording)
                    elif options.sample_hz is None and samples.is_empty(recording):
                        hz = self._paces.hz(process.uid, process.id, 1)
                        why = samples.why_not(self._sampler, process, options, hz) or samples.TOO_SHORT
                        samples.miss(recording, why)
            except Exhausted as error:
                return Recording(State.FAILED, Reason.DISK_FULL, str(error))
        said = [planning.replaced(sentence, fix) for sentence in recording.not_honoured]
        recording.not_honoured = list(
            dict.fromkeys([*_missing_now(plan, options, "ops" in recorder.status.by_source), *said])
        )
        self._operators.explain(recording, process, hello)
        self._learn((process.id, planning.alike(options)), recorder, recording, time.monotonic() - begun)
        self._later(self._compare(recorder, recording, session.capture, process.id, begun))
        return recording

    def status(self) -> tuple[bool, str, int]:
        """For `doctor`."""
        agents = self._registry.all()
        armed = sum(agent.armed for agent in agents)
        return True, f"processes attach at {self._socket}: {len(agents)}, {armed} of them recorded", len(agents)

    def statistics(self) -> SdkStatistics:
        """Counts since the daemon started, and of now."""
        agents = self._registry.all()
        armed = sum(agent.armed for agent in agents)
        counts = dict(self._registry.counts)
        held = self._registry.porters.droppers.held
        return SdkStatistics(len(agents), armed, counts, dict(self._seconds), dict(self._steps), self._stepping, held)

    async def _compare(
        self, recorder: SdkRecorder, recording: Recording, capture: str, process: ProcessId, begun: float
    ) -> None:
        before = recording.cost
        await recorder.compare(recording)
        self._learn_steps(recorder.status, time.monotonic() - begun)
        if recording.cost != before:
            self.on_compared(capture, process, recording.cost)

    def _later(self, work: Coroutine[object, object, None]) -> None:
        """Done beside all else, as far as it comes."""
        task = asyncio.get_running_loop().create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    def _learn_steps(self, status: Status, elapsed: float) -> None:
        """Only where both are known: sums of unlike things could not be compared. In `elapsed` seconds it made both."""
        if not (status.step_ns and status.step_ns_after):
            return
        self._stepping += 1
        self._steps["during"] += min(status.step_ns / 1e9, elapsed)
        self._steps["after"] += min(status.step_ns_after / 1e9, elapsed)

    def _came_back(self, agent: Agent, epoch: int, fd: int) -> None:
        """An agent that is armed by a daemon before us."""
        arm = agent.take_up(epoch)
        orphan = self._orphans.get((agent.hello.incarnation, epoch))
        if orphan is None or orphan.process != agent.process:  # whatever it knows of another process's
            let_go(fd)
            self._take_again(agent, epoch, "of before profd was restarted")
            agent.stop()
            agent.release()
            return
        del self._orphans[agent.hello.incarnation, epoch]
        self.on_returned(orphan.capture, orphan.process)
        self._later(self._recover(agent, arm, fd, orphan))
        self._take_again(agent, epoch, orphan.capture)

    def _take_again(self, agent: Agent, epoch: int, capture: str) -> None:
        """The lease of an epoch that an earlier daemon has granted: free when the agent says that it is disarmed."""
        with contextlib.suppress(Held):
            lease = self._leases.take(agent.process, Holder(HolderKind.PROFD, capture=capture), epoch)
            self._leases.arm(lease, agent.hello.incarnation)
            self._leases.end(lease)

    async def _recover(self, agent: Agent, arm: Arm, fd: int, orphan: orphans.Orphan) -> None:
        await self._take(orphan, take_over(agent, arm, fd, orphan.directory, self._parts))

    def _came_late(self, agent: Agent, left: Left) -> None:
        """An agent that an earlier daemon had armed, and that has let go of what it recorded since."""
        key = agent.hello.incarnation, left.epoch
        orphan = self._orphans.get(key)
        if orphan is None or orphan.process != agent.process:
            return
        del self._orphans[key]
        self.on_returned(orphan.capture, orphan.process)
        self._later(self._take(orphan, count_left(agent, left, orphan.directory, self._parts)))

    async def _take(self, orphan: orphans.Orphan, taking: Coroutine[object, object, Sequence[Loss] | None]) -> None:
        try:
            losses = await taking
        except (OSError, ProfdError) as error:
            log.warning("a recording could not be taken over", extra={"capture": orphan.capture, "why": str(error)})
            losses = None
        else:
            if losses is None:
                log.warning(
                    "a recording was taken over in part; its capture can be retried", extra={"capture": orphan.capture}
                )
        self.on_recovered(orphan.capture, orphan.process, None if losses is None else list(losses))

    def _learn(
        self, asked: tuple[ProcessId, frozenset[str]], recorder: SdkRecorder, recording: Recording, elapsed: float
    ) -> None:
        most = elapsed * _CORES  # of the process's word, which goes into a sum of all users'
        for kind, seconds in (recorder.status.by_source or {"all": recorder.status.seconds}).items():
            self._seconds[kind] += min(seconds, most)
        window_ns = (recording.end_ns or 0) - (recording.start_ns or 0)
        if recorder.events and window_ns > 0:
            self._rates[asked] = planning.EarlierTrace(recorder.events / window_ns, recorder.status.seconds / window_ns)


def records_ranges(agent: Agent) -> bool:
    """Whether it is profclient's, not that of a collector alone."""
    return "ranges" in agent.hello.can


def _uses_cupti(process: Process, agent: Agent) -> bool:
    """Recording it may subscribe to CUPTI: our collector does, and torch's own profiler."""
    return process.cuda or not records_ranges(agent)


def _missing_now(plan: Plan, options: Options, operators: bool) -> list[str]:
    """Sentences of what may have changed since the capture was planned: an observer, and whether samples can be had.

    `operators`: some were recorded, so the process has found an observer that nobody here knew of.
    """
    missing = {**plan.unserved} if options.sample_hz is not None else {**plan.unserved, "sample_hz": ""}
    if operators:
        missing.pop("torch", None)
    return [f"{option_word(name)}: {why}" for name in ("torch", "sample_hz") if (why := missing.get(name))]


def _better(process: Process) -> tuple[str, ...]:
    """Sources that see more of this process, should they be able to serve it."""
    return ("jax",) if process.xla else ()


def _refused(offer: Offer, plan: Plan) -> Recording:
    if not offer.can:
        state = State.BUSY if offer.busy else State.REFUSED
        return Recording(state, offer.why_code, f"{offer.reason}; {offer.fix}")
    return Recording(State.REFUSED, plan.refusal_code, plan.refusal)
