"""The source `pyspy`: samples of any Python process, with nothing installed in it.

py-spy runs as a supervised child of the daemon and reads the target's memory
from outside. Without native frames the target is never paused (py-spy's
`--nonblocking`): pausing costs a ptrace stop per thread and sample, which made
a process with 64 threads eight times slower at 100 samples a second, where
reading without a pause cost it a quarter
(docs/decisions/0003-pyspy-format.md). A stack that changes while it is read is
dropped and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from pathlib import Path
from typing import ClassVar, Final

from profd import __version__
from profd.errors import Unavailable
from profd.fairness.shares import Refused
from profd.limits import CAPTURE_WINDOW_MAX_NS, PYSPY_TURN_SECONDS
from profd.model.capture import Options, Reason, Recording, State
from profd.model.traits import SAMPLED
from profd.sources.base import Offer, Plan, Session, Source
from profd.sources.declaration import (
    BY_PROCESS,
    NUMBERS_NO_STEPS,
    SERVED,
    CommonAnswers,
    Declaration,
    Refuses,
    SamplingAnswers,
    TorchAnswers,
    Unserved,
    without_server,
)
from profd.sources.pyspy import tool
from profd.sources.pyspy.permission import Rights, dumpable, permission, permission_now
from profd.sources.pyspy.recording import START_SECONDS, WRITE_SECONDS, PySpyRecorder, Reader, Sampling
from profd.sources.pyspy.starts import Starts
from profd.targets.first_looks import accept, standing
from profd.targets.identity import Standing
from profd.targets.process import Process

HZ_DEFAULT: Final = 100
HZ_MAX: Final = 1000
SAMPLES_MAX: Final = 200_000  # of one recording: py-spy holds them all in memory until the end
_LATENCY_NS: Final = 300_000_000  # measured: 0.1 s, with torch loaded and native symbols 1 s
_LATENCY_NATIVE_NS: Final = 1_000_000_000
_KINETO: Final = "KINETO_USE_DAEMON"
_UNMEASURED: Final = (
    "--native pauses the process for each sample, and nothing outside can measure what that costs it, so it does not "
    "serve --max-overhead; leave one of them out."
)
_INSTALL: Final = "Install it beside profd: pip install py-spy, in profd's environment."

DECLARATION: Final = Declaration(
    name="pyspy",
    rank=50,
    common=CommonAnswers(
        duration_ns=SERVED,
        iterations=Refuses("pyspy samples from outside and sees no iterations. Give --duration."),
        start_at_ns=SERVED,
        begin_step=NUMBERS_NO_STEPS,
        at_least_ns=SERVED,  # there are no iterations that could be over before
        stacks=SERVED,
        c_calls=Unserved("pyspy sees Python frames; --native samples those of C functions"),
        max_overhead=BY_PROCESS,
    ),
    torch=TorchAnswers(
        torch=Unserved("pyspy sees no operators, so there is none to record them with"),
        shapes=Unserved("pyspy sees Python frames, not operators and their inputs"),
        memory=Unserved("pyspy records no allocations"),
        modules=Unserved("pyspy sees functions, not the modules they belong to"),
        flops=Unserved("pyspy sees no operators"),
        gpu_fallback=Unserved("pyspy sees no operators"),
    ),
    sampling=SamplingAnswers(sample_hz=BY_PROCESS, native=SERVED),
    server=without_server("pyspy"),
    traits=SAMPLED,
)


class PySpySource(Source):
    """Stacks of every Python thread, sampled at regular times; no operators, no kernels."""

    declaration: ClassVar[Declaration] = DECLARATION

    def __init__(self, program: Path | None = None, rights: Rights | None = None) -> None:
        """`program` and `rights` are found out in `open` where they are not given."""
        self._program = program
        self._rights = rights
        self._version = ""
        self._unavailable = "" if program else "py-spy has not been looked for yet."
        self.starts = Starts()

    async def open(self) -> None:
        """Find py-spy and ask for its version. Unavailable if there is none that runs."""
        self._rights = self._rights or Rights.mine()
        try:
            self._program = self._program or tool.find()
            if self._program is None:
                raise Unavailable("py-spy is not installed.")
            self._version = await tool.version(self._program)
        except (Unavailable, OSError) as error:
            self._unavailable = str(error)
            raise Unavailable(f"{error} {_INSTALL}") from error
        self._unavailable = ""

    @property
    def program(self) -> Path | None:
        """The py-spy in use; None before `open` and where there is none."""
        return self._program

    def offer(self, process: Process) -> Offer:
        """Any Python process whose memory the daemon may read."""
        subject = f"process {process.id.pid}"
        if self._unavailable or self._program is None:
            return Offer(False, self._unavailable, _INSTALL)
        if process.zombie:
            return Offer(False, f"{subject} has ended.", "", Reason.TARGET_ENDED)
        if not process.python:
            return Offer(False, f"{subject} runs no Python interpreter.", concerns=False)
        self._rights = self._rights or Rights.mine()
        allowed = permission(process, self._rights, dumpable(process))
        if not allowed.can:
            return allowed
        if process.stopped:
            return Offer(
                False,
                f"{subject} is stopped: nothing would change between two samples.",
                f"kill -CONT {process.id.pid}; or look at it as it is with profctl where --pid {process.id.pid}",
            )
        return allowed

    def plan(self, process: Process, options: Options) -> Plan:
        """Yield and cost of sampling; the estimate of bytes is the worst case seen."""
        hz = options.sample_hz if options.sample_hz is not None else float(HZ_DEFAULT)
        if not math.isfinite(hz) or hz <= 0:
            return Plan(False, f"samples must be a number above 0, not {hz}.", Reason.NOT_HONOURED)
        sampling = _sampling(options)
        if options.max_overhead is not None and sampling.native:
            return Plan(False, _UNMEASURED, Reason.NOT_HONOURED)
        samples = sampling.window_ns * sampling.hz // 1_000_000_000
        if samples > SAMPLES_MAX and options.duration_ns and not options.force:
            return Plan(
                False,
                f"{samples} samples are more than the {SAMPLES_MAX} of one recording. "
                "Ask for a shorter --duration or fewer samples a second, or add --force.",
                Reason.OVER_LIMIT,
            )
        return Plan(
            serves=True,
            unserved=_unserved(hz),
            latency_ns=_LATENCY_NATIVE_NS if sampling.native else _LATENCY_NS,
            memory_bytes=0,
            trace_bytes=0,
            risks=(_risk(sampling),),
            deadline_ns=sampling.window_ns + round((PYSPY_TURN_SECONDS + START_SECONDS + WRITE_SECONDS) * 1e9),
        )

    async def record(self, process: Process, options: Options, session: Session) -> Recording:
        """Sample until the window is over or stopped; see Source."""
        offer = self.offer(process)
        plan = self.plan(process, options)
        if self._program is None or not offer.can or not plan.serves:
            return _refused(offer, plan)
        with contextlib.ExitStack() as held:
            try:
                cores = held.enter_context(self.starts.one_more(process.uid))
            except Refused as error:
                return Recording(State.BUSY, Reason.OVER_LIMIT, f"Process {process.id.pid} is not sampled: {error}.")
            accepting = accept(process.id, process.uid, session.together)
            accepted = held.enter_context(contextlib.closing(await accepting))
            why = await asyncio.to_thread(accepted.hold)
            if why:
                return Recording(State.REFUSED, Reason.NOT_PERMITTED, why)
            sampling = _sampling(options)
            recorder = PySpyRecorder(self._program, process, sampling, session, accepted, self.starts, cores)
            now = permission_now(process, accepted, self._rights or Rights.mine())
            if not now.can:  # of the program that was accepted, or in the middle of an exec
                same = await standing(accepted, session.together) is Standing.SAME
                return _refused(now, plan) if same else recorder.moved_on()
            recording = await recorder.run()
        recording.versions[recorder.reader] = self._version if recorder.reader is Reader.PY_SPY else __version__
        if process.framework == "torch" and not options.source and recording.reason is Reason.NONE:
            recording.message = recording.message or _without_operators(process)
        return recording

    def status(self) -> tuple[bool, str, int]:
        """For `doctor`; the number of processes is not kept here."""
        if self._unavailable:
            return False, f"{self._unavailable} {_INSTALL}", 0
        rights = self._rights or Rights.mine()
        may = "any process" if rights.capable and rights.scope < 3 else f"processes of uid {rights.uid}"
        if not rights.capable and rights.scope >= 1:
            may = f"no process (kernel.yama.ptrace_scope is {rights.scope})"
        if rights.missing:
            may = f"no process (profd is root without {', '.join(rights.missing)})"
        return True, f"py-spy {self._version} at {self._program}; may read {may}", 0


def _without_operators(process: Process) -> str:
    """The first line of the answer, where PyTorch was not asked to be sampled."""
    also = "; --source kineto --force has them now, and can kill the job" if _KINETO in process.environ else ""
    return (
        "samples only: PyTorch's operators are recorded in programs that are attached (profctl run, or "
        f"profclient.attach() in the program){also}"
    )


def _sampling(options: Options) -> Sampling:
    """The request in py-spy's terms; an open-ended one gets the longest window that is bearable."""
    hz = max(1, min(HZ_MAX, round(options.sample_hz if options.sample_hz is not None else HZ_DEFAULT)))
    longest = min(CAPTURE_WINDOW_MAX_NS, SAMPLES_MAX * 1_000_000_000 // hz)
    return Sampling(
        options.duration_ns or longest,
        *(hz, options.native, options.start_at_ns, bool(options.duration_ns), options.sample_hz is not None),
        max_overhead=options.max_overhead,
    )


def _unserved(hz: float) -> dict[str, str]:
    """Options that sampling serves in part, with the reason."""
    if hz > HZ_MAX:
        return {"sample_hz": f"{hz:g} is above the limit; sampled {HZ_MAX} times a second"}
    if hz != max(1, round(hz)):
        return {"sample_hz": f"{hz:g} is rounded to {max(1, round(hz))}"}
    return {}


def _risk(sampling: Sampling) -> str:
    if sampling.native:
        return (
            f"The process is paused {sampling.hz} times a second, for each of its threads in turn "
            "(native frames cannot be read otherwise): expect it to be slower, much slower with many threads."
        )
    return "The process is not paused; reading its memory takes CPU time of this host, more with many threads."


def _refused(offer: Offer, plan: Plan) -> Recording:
    if offer.can:
        return Recording(State.REFUSED, plan.refusal_code, plan.refusal)
    return Recording(State.REFUSED, offer.why_code, f"{offer.reason} {offer.fix}".strip())
