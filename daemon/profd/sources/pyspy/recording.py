"""One recording of a sampler, py-spy or profd's own, from its start to the file it leaves."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import os
import re
import signal
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from profd.decode import anchor
from profd.limits import PYSPY_TURN_SECONDS, SAMPLER_WORDS_BYTES_MAX
from profd.model.capture import Cost, Phase, RawFile, Reason, Recording, State
from profd.sources.base import Session
from profd.sources.pyspy import tool, watching
from profd.sources.pyspy.confinement import Confinement, confine
from profd.sources.pyspy.lanes import ANY
from profd.sources.pyspy.spout import Spout
from profd.sources.pyspy.starts import Starts
from profd.sources.pyspy.target import Target
from profd.targets import looks
from profd.targets.identity import Accepted, Standing
from profd.targets.process import Process

START_SECONDS: Final = 60.0  # py-spy reads the symbols of the interpreter first
WRITE_SECONDS: Final = 120.0  # it writes everything at the end
FILE_BYTES_MAX: Final = 1 << 30
_KILL_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = (0.1, 1.0)  # between two looks at a process, at least and at most: else a sample's time
_ANSWER_SECONDS: Final = 30.0  # that a process which does not answer is asked again, while its samples wait for that
_ASK_AGAIN_SECONDS: Final = 1.0
_SPARE_SECONDS: Final = 5  # py-spy ends by itself so long after the window, should nobody end it
_COUNTS: Final = re.compile(r"Samples: (\d+) Errors: (\d+)")
_LATE: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s behind in sampling")  # a line a second, from one second on
_LATE_HEARD_SECONDS: Final = 3.0  # one that has caught up says it no more
_RATE_WORTH_SAYING: Final = 0.9  # of what was to be
_ERRORS_WORTH_SAYING: Final = 0.01
_JUDGED_SECONDS: Final = 0.5  # of samples, before --max-overhead is held against what they cost
_SPENT_MIN: Final = 0.25  # seconds of CPU time that those of a capture take before they are ended for that
_SAMPLES_MIN: Final = 2.0  # that a window has room for: in a shorter one none need fall
_TOO_MUCH: Final = f"printed more than {SAMPLER_WORDS_BYTES_MAX >> 10} KiB, and was ended"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample: how long, how often, and whether native frames are unwound."""

    window_ns: int
    hz: int
    native: bool
    start_at_ns: int | None = None
    bounded: bool = True  # its length is asked for
    asked: bool = False  # how often, too
    max_overhead: float | None = None  # of the host's cores, that the sampler may take


class Reader(StrEnum):
    """What reads the stacks: docs/decisions/0047-stacks.md."""

    OWN = "profd-sampler"  # native/sampler/stacks.h
    PY_SPY = "py-spy"


def readers(sampling: Sampling) -> tuple[Reader, ...]:
    """The readers that are tried, in turn: the second where the first does not know the interpreter.

    Ours reads no native frames.
    """
    return (Reader.PY_SPY,) if sampling.native else (Reader.OWN, Reader.PY_SPY)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look found, of the process and of its sampler."""

    at_ns: int  # before the look
    standing: Standing
    full: bool = False
    cpu_seconds: float | None = None


class PySpyRecorder:
    """Runs a sampler once on one process. `run` is called once."""

    def __init__(
        self,
        program: Path,
        process: Process,
        sampling: Sampling,
        session: Session,
        accepted: Accepted,
        starts: Starts | None = None,
        cores: frozenset[int] = ANY,
    ) -> None:
        """`accepted`: held, and the caller's to close. `starts`: whose turn this waits for; none where it is alone.

        `cores`: that the sampler may run on.
        """
        self._program = program
        self._starts = starts or Starts()
        self._begun: Callable[[], None] = _nothing  # lets the next sampler begin
        self._sampling = sampling
        self._session = session
        self._target = Target(process)
        self._accepted = accepted
        self._cores = cores
        self._standing = Standing.SAME  # as the last look found it
        self._same_ns = 0  # until when all that was read of it was the accepted program's
        self._name = f"process {process.id.pid}"
        self._file = session.directory / "samples.json"
        self._began = asyncio.Event()
        self._began_ns = 0
        self._ended_ns = 0
        self._gone_ns = 0  # the sampler has ended
        self._start_cpu_seconds: float | None = None  # of the sampler, until its first sample
        self._cpu_seconds: float | None = None  # from there to the window's end
        self._too_much = False  # so that it was killed
        self._full = False  # so that it was ended early
        self._costly = False  # the same: it has taken what it may of the host's cores
        self._late = (0, 0.0)  # when it last said that it is behind, in Unix ns, and how many seconds
        self._over = 0.0  # the share of the host's cores for which --max-overhead has ended it
        self._resumed = False
        self._said: deque[str] = deque(maxlen=tool.LINES_KEPT)  # what the sampler said, both streams
        self._unknown = False  # it was profd's own reader, which does not know the interpreter
        self.reader = Reader.PY_SPY

    async def run(self) -> Recording:
        """Record; the target is running again whatever happens, also when this is cancelled."""
        if await self._stopped_before_start():
            return self._untouched()
        turn = await self._starts.turn(self._target.process.uid, self._session)
        if turn is None:
            return self._untouched() if self._session.stop.is_set() else self._never_its_turn()
        self._begun = turn
        try:
            return await self._run()
        finally:
            self._begun()

    def _untouched(self) -> Recording:
        return Recording(State.CANCELLED, Reason.CANCELLED_BY_USER, f"{self._name} was not touched.")

    def _never_its_turn(self) -> Recording:
        return Recording(
            State.BUSY,
            Reason.OVER_LIMIT,
            f"So many samplers were to begin on this host that {self._name} had no turn within "
            f"{PYSPY_TURN_SECONDS:.0f} s. Sample fewer processes, or try again.",
        )

    async def _run(self) -> Recording:
        refusal = await looks.seen(self._accepted, self._refusal)
        if refusal is not None:
            return refusal
        started_ns = time.time_ns()
        for reader in readers(self._sampling):
            self.reader = reader
            self._said.clear()
            recording = await self._run_with(started_ns)
            if not self._unknown or self._standing is not Standing.SAME:
                break
        return recording

    async def _run_with(self, started_ns: int) -> Recording:
        self._session.report(State.ARMED, f"starting {self.reader}")
        async with Spout(self._file, FILE_BYTES_MAX) as spout:
            try:
                confinement = await asyncio.to_thread(self._confinement, spout.writing)
                if self.reader is Reader.OWN:
                    arguments = self._arguments_of_own(spout)
                    pyspy = await tool.spawn(None, arguments, confinement, tool.READER)
                else:
                    pyspy = await tool.spawn(self._program, self._arguments(spout), confinement)
            except OSError as error:
                return Recording(State.FAILED, Reason.SOURCE_FAILED, f"{self.reader} could not be started: {error}.")
            spout.start()
            try:
                recording = await self._supervise(pyspy, spout)
            finally:
                await self._let_go(pyspy)
        self._describe(recording, started_ns)
        return recording

    async def _stopped_before_start(self) -> bool:
        """Wait for the agreed instant; True if the capture was stopped meanwhile."""
        if self._sampling.start_at_ns is not None:
            wait = (self._sampling.start_at_ns - time.time_ns()) / 1e9
            self._session.report(State.ARMED, "waiting for the agreed start")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, wait)):
                    await self._session.stop.wait()
        return self._session.stop.is_set()

    def _refusal(self) -> Recording | None:
        standing = self._accepted.standing()
        if standing is Standing.CHANGED:
            return self.moved_on()
        if standing is Standing.ENDED:
            return Recording(State.FAILED, Reason.TARGET_ENDED, f"{self._name} has ended before its capture.")
        if self._target.stopped():
            return Recording(
                State.REFUSED,
                Reason.NO_SOURCE,
                f"{self._name} is stopped (SIGSTOP): nothing would change between two samples. "
                f"Continue it (kill -CONT {self._target.process.id.pid}), or look at it with profctl where.",
            )
        tracer = self._target.tracer() if self._sampling.native else 0
        if tracer:
            return Recording(
                State.BUSY,
                Reason.OTHER_PROFILER,
                f"{self._name} is held by the debugger with pid {tracer}, and native frames need its place. "
                "Detach it, or leave out --native.",
            )
        return None

    def _confinement(self, output: int) -> Confinement:
        confined = confine(self._target.process, self._sampling.native, output)
        warden = confined.warden and self.reader is not Reader.OWN  # that opens no file
        return dataclasses.replace(confined, cores=self._cores, warden=warden)

    def _arguments_of_own(self, spout: Spout) -> list[str]:
        seconds = self._sampling.window_ns / 1e9 + _SPARE_SECONDS
        return [str(spout.writing), str(self._sampling.hz), f"{seconds:.3f}"]

    def _arguments(self, spout: Spout) -> list[str]:
        seconds = math.ceil(self._sampling.window_ns / 1e9) + _SPARE_SECONDS
        return [
            "record",
            *("--pid", str(self._target.process.id.pid)),
            *("--format", "chrometrace", "--output", f"/proc/self/fd/{spout.writing}"),
            *("--rate", str(self._sampling.hz), "--duration", str(seconds)),
            # Without --idle a blocked thread seems to go on with what it did before;
            # --function gives the first line of functions, as torch.profiler names them.
            *("--idle", "--threads", "--function", "--full-filenames"),
            "--hideprogress",  # with it a line a second at most, when it is late
            "--native" if self._sampling.native else "--nonblocking",
        ]

    async def _supervise(self, pyspy: asyncio.subprocess.Process, spout: Spout) -> Recording:
        readers = [
            asyncio.create_task(tool.last_lines(stream, self._heard, lambda: self._heard_too_much(pyspy)))
            for stream in (pyspy.stdout, pyspy.stderr)
            if stream is not None
        ]
        try:
            await _first_of(START_SECONDS, tool.gone(pyspy), self._began.wait(), self._session.stop.wait())
            asked = False
            if self._began.is_set():
                self._session.report(State.RECORDING, f"sampling {self._sampling.hz} times a second")
                asked = await self._window(pyspy)
                self._session.report(State.DRAINING, f"{self.reader} writes what it saw")
            self._ended_ns = time.time_ns()
            in_time = await self._finish(pyspy)
            self._gone_ns = time.time_ns()
            await asyncio.wait(readers, timeout=tool.HELD_SECONDS)  # others may hold its pipes
            await spout.finish()
            await self._last_look(pyspy)
            self._unknown = self.reader is Reader.OWN and pyspy.returncode == tool.UNKNOWN_STATUS
            recording = self._judge(pyspy.returncode or 0, asked, in_time)
            if spout.failure:
                recording.warnings.append(f"The samples of {self._name} could not all be stored: {spout.failure}.")
            return recording
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    async def _window(self, pyspy: asyncio.subprocess.Process) -> bool:
        """Wait for the end of the window, or until the sampler may hold no more, True, or for its end, False."""
        until = time.monotonic() + self._sampling.window_ns / 1e9
        before = self._start_cpu_seconds = tool.sampler_cpu_seconds(pyspy)
        while pyspy.returncode is None:
            seen = await self._look(pyspy)
            if seen.standing is Standing.CHANGED and not self._accepted.silent:  # one that is may answer at the end
                return False
            self._full = seen.full
            self._costly = self._has_taken_its_share(seen.cpu_seconds, before)
            self._over = self._beyond_limit(seen, before)
            left = until - time.monotonic()
            if left <= 0 or self._full or self._costly or self._over or self._session.stop.is_set():
                after = seen.cpu_seconds
                self._cpu_seconds = None if before is None or after is None else max(0.0, after - before)
                return True
            await self._until_news(pyspy, left, before)
        return False

    async def _until_news(self, pyspy: asyncio.subprocess.Process, seconds: float, before: float | None) -> None:
        """Until its end, the window's, a stop, or a look that finds what ends the window: the others wake nobody."""
        looked = (self._accepted.uid, lambda: self._ends(self._noted(self._see(pyspy)), before), self._look_seconds)
        with watching.watch(*looked, nobody_asked=self._session.cores_max is not None) as news:
            await _first_of(seconds, tool.gone(pyspy), news.wait(), self._session.stop.wait())

    def _ends(self, seen: Seen, before: float | None) -> bool:
        """Whether the window ends with this look; one in vain is taken again, patiently (`_look`)."""
        costly = self._has_taken_its_share(seen.cpu_seconds, before) or self._beyond_limit(seen, before) > 0
        return seen.standing is Standing.CHANGED or seen.full or costly

    @property
    def _look_seconds(self) -> float:
        """Until the next look: the samplers of a capture are looked at ten times a second together, and each once."""
        least, most = _LOOK_SECONDS
        return min(max(least * self._session.together, 1 / self._sampling.hz), most)

    def _has_taken_its_share(self, spent: float | None, before: float | None) -> bool:
        """Of the whole window, where its length is known, else of what has passed of it."""
        if self._session.cores_max is None or spent is None or before is None:
            return False
        window_ns = self._sampling.window_ns if self._sampling.bounded else time.time_ns() - self._began_ns
        least = _SPENT_MIN / self._session.together  # enough for a sample of 1,000 threads
        return spent - before > max(least, self._session.cores_max * window_ns / 1e9)

    def _beyond_limit(self, seen: Seen, before: float | None) -> float:
        """The share of the host's cores that it takes, where that is more than --max-overhead allows; else 0."""
        limit, lasted = self._sampling.max_overhead, (seen.at_ns - self._began_ns) / 1e9
        if limit is None or seen.cpu_seconds is None or before is None or lasted < _JUDGED_SECONDS:
            return 0.0
        share = (seen.cpu_seconds - before) / lasted / (os.cpu_count() or 1)
        return share if share > limit else 0.0

    async def _look(self, pyspy: asyncio.subprocess.Process) -> Seen:
        """Before anything is kept: a process that has ended cannot be asked any more what it was at its end."""
        return self._noted(await looks.seen(self._accepted, lambda: self._see(pyspy)))

    async def _last_look(self, pyspy: asyncio.subprocess.Process) -> None:
        """The sampler has ended, and reads no more. All samples hang on this answer, which any process misses on a busy
        host: it is asked for again.
        """
        until = time.monotonic() + _ANSWER_SECONDS
        await self._look(pyspy)
        while self._accepted.silent and time.monotonic() < until:
            await asyncio.sleep(_ASK_AGAIN_SECONDS)
            await self._look(pyspy)

    def _noted(self, seen: Seen) -> Seen:
        self._standing = seen.standing
        if seen.standing is Standing.SAME:
            self._same_ns = seen.at_ns
        return seen

    def _see(self, pyspy: asyncio.subprocess.Process) -> Seen:
        """In the thread that looks."""
        at_ns, standing = time.time_ns(), self._accepted.standing()
        if standing is not Standing.SAME:
            return Seen(at_ns, standing)
        self._target.note_ended()
        full = tool.full(pyspy.pid, self._sampling.native)
        return Seen(at_ns, standing, full, tool.sampler_cpu_seconds(pyspy))

    def moved_on(self) -> Recording:
        """Data that was read of another program is nobody's to see."""
        self._file.unlink(missing_ok=True)
        reason = Reason.TARGET_SILENT if self._accepted.silent else Reason.TARGET_ENDED
        return Recording(State.FAILED, reason, f"{self._accepted.moved_on()}. No sample is kept.")

    async def _finish(self, pyspy: asyncio.subprocess.Process) -> bool:
        """Make it write and end; False if it had to be killed."""
        await tool.interrupt(pyspy, self._began.is_set())
        if await tool.ended(pyspy, WRITE_SECONDS):
            return True
        with contextlib.suppress(ProcessLookupError):
            pyspy.kill()
        # One that waits for a disk that is dead does not end, and makes no further call either.
        await tool.ended(pyspy, tool.REAP_SECONDS)
        return False

    def _heard(self, line: str) -> None:
        self._said.append(line)
        if late := _LATE.match(line):
            self._late = (time.time_ns(), float(late[1]))
        if line.startswith("Sampling process") and not self._began.is_set():
            self._began_ns = time.time_ns()
            self._began.set()
            self._begun()

    def _heard_too_much(self, pyspy: asyncio.subprocess.Process) -> None:
        self._too_much = True
        with contextlib.suppress(ProcessLookupError):
            pyspy.kill()

    def _judge(self, status: int, asked: bool, in_time: bool) -> Recording:
        """The outcome, from the sampler's end, its words and its file."""
        recording = Recording(start_ns=self._began_ns or None, end_ns=self._ended_ns or None)
        if self._standing is Standing.CHANGED:
            return self.moved_on()
        if not self._began.is_set():
            return self._never_began(recording, status)
        size = self._file.stat().st_size if self._file.exists() else 0
        counts = next((found for line in reversed(self._said) if (found := _COUNTS.search(line))), None)
        samples, errors = (int(counts[1]), int(counts[2])) if counts else (None, 0)
        if size == 0 or samples == 0 or not self._same_ns:
            if status == 0 and self._session.stop.is_set() and self._seconds() * self._sampling.hz < 1:
                return self._stopped_at_once(recording)
            recording.state = State.FAILED
            recording.reason, recording.message = self._why_nothing(status, in_time, errors)
            return recording
        self._append_anchor(0 if self._standing is Standing.SAME else self._same_ns)
        recording.files = [RawFile(str(self._file), "pyspy")]
        recording.reason, recording.message = self._shortfall(status, size, asked)
        late = self._rate_not_kept()
        (recording.not_honoured if self._sampling.asked else recording.warnings).extend(late)
        if self._costly:
            recording.warnings.append(
                f"The sampler of {self._name} was ended after {self._seconds():.1f} s of samples: it had taken as much "
                "CPU time as one may that nobody asked for (1 % of the host's cores). --samples has no such limit."
            )
        if samples and errors > samples * _ERRORS_WORTH_SAYING:
            recording.warnings.append(
                f"Stacks of {self._name} that could not be read (they changed meanwhile, or it was stopped): {errors} "
                f"were dropped, {samples} kept."
            )
        return recording

    def _rate_not_kept(self) -> list[str]:
        """A sentence where the sampler could not keep up; it goes on as fast as it can then."""
        (heard_ns, late), hz = self._late, self._sampling.hz
        lasted = (heard_ns - self._began_ns) / 1e9
        if not late or self._ended_ns - heard_ns > _LATE_HEARD_SECONDS * 1e9:
            return []
        rate = hz * max(0.0, 1 - late / max(lasted, late))
        if rate > hz * _RATE_WORTH_SAYING:
            return []
        where = f", on the {len(self._cores)} of this host's cores that its user's samplers share," * bool(self._cores)
        return [
            f"samples: {self._name} was sampled {rate:.2g} times a second, not {hz}: its sampler{where} could not keep "
            "up. Sample fewer threads or processes at once, or less often."
        ]

    def _shortfall(self, status: int, size: int, asked: bool) -> tuple[Reason, str]:
        """The shortfall of a recording that has samples; NONE when it is whole."""
        if size >= FILE_BYTES_MAX:
            return Reason.TRUNCATED, (
                f"The samples of {self._name} exceed {FILE_BYTES_MAX >> 20} MiB; the rest is missing. "
                "Ask for a shorter window or fewer samples a second."
            )
        if self._too_much:
            return Reason.SOURCE_FAILED, f"{self.reader} {_TOO_MUCH}; what it wrote is kept."
        if status != 0:
            return Reason.SOURCE_FAILED, (
                f"{self.reader} was ended by {_end(status)} while it wrote; what it wrote is kept."
            )
        if self._full:
            return Reason.TRUNCATED, (
                f"The samples of {self._name} are more than {self.reader} may hold "
                f"({tool.memory_bytes(self._sampling.native) >> 20} MiB of memory), so it was ended after "
                f"{self._seconds():.1f} s. Ask for a shorter window or fewer samples a second."
            )
        if self._over:
            return Reason.OVER_LIMIT, (
                f"Stopped early, after {self._seconds():.1f} s: {self.reader} took {100 * self._over:.2g} % of the "
                f"host's cores, more than the {100 * (self._sampling.max_overhead or 0):g} % of --max-overhead; what "
                "was sampled is kept. Sample fewer processes, or less often."
            )
        if asked:
            return Reason.NONE, ""
        if self._standing is not Standing.SAME:
            return Reason.TARGET_ENDED, (
                f"{self._name} ended {self._seconds():.1f} s into the window; the samples up to then are kept."
            )
        return Reason.SOURCE_FAILED, (
            f"{self.reader} stopped by itself after {self._seconds():.1f} s; the samples up to then are kept."
        )

    def _never_began(self, recording: Recording, status: int) -> Recording:
        recording.start_ns = recording.end_ns = None
        recording.state = State.FAILED
        if self._standing is not Standing.SAME:
            recording.reason = Reason.TARGET_ENDED
            recording.message = f"{self._name} ended before its first sample."
        elif self._session.stop.is_set():
            self._stopped_at_once(recording)
        elif status > 0:
            recording.reason, recording.message = tool.explain(self._said, self.reader)
            if recording.reason in (Reason.NO_SOURCE, Reason.NOT_PERMITTED):
                recording.state = State.REFUSED
        elif status == -signal.SIGINT:  # ours
            recording.reason = Reason.TIMEOUT
            recording.message = f"{self.reader} did not begin to sample {self._name} within {START_SECONDS:.0f} s."
        elif self._too_much:
            recording.reason = Reason.SOURCE_FAILED
            recording.message = f"{self.reader} {_TOO_MUCH} before its first sample."
        else:
            recording.reason = Reason.SOURCE_FAILED
            recording.message = f"{self.reader} was ended by {_end(status)} before the first sample of {self._name}."
        return recording

    def _stopped_at_once(self, recording: Recording) -> Recording:
        recording.start_ns = recording.end_ns = None
        recording.state, recording.reason = State.CANCELLED, Reason.CANCELLED_BY_USER
        recording.message = f"The capture was stopped before {self._name} was sampled."
        return recording

    def _why_nothing(self, status: int, in_time: bool, errors: int) -> tuple[Reason, str]:
        if self._too_much:
            return Reason.SOURCE_FAILED, f"{self.reader} {_TOO_MUCH}; its samples are lost."
        if not in_time:
            return Reason.TIMEOUT, f"{self.reader} did not write its samples within {WRITE_SECONDS:.0f} s."
        if status == -signal.SIGABRT:
            mib = tool.memory_bytes(self._sampling.native) >> 20
            return Reason.SOURCE_FAILED, (
                f"{self.reader} gave up ({_end(status)}), as it does where {mib} MiB are not enough for its samples, "
                "which are lost. Ask for a shorter window or fewer samples a second."
            )
        if status < 0:
            return Reason.SOURCE_FAILED, f"{self.reader} was ended by {_end(status)}; its samples are lost."
        if self._standing is not Standing.SAME:
            return Reason.TARGET_ENDED, f"{self._name} ended before its first sample."
        if status > 0:
            return tool.explain(self._said, self.reader)
        if self._seconds() * self._sampling.hz < _SAMPLES_MIN:
            return Reason.SOURCE_FAILED, (
                f"The window of {self._seconds() * 1000:.0f} ms was over before the first of "
                f"{self._sampling.hz:g} samples a second: ask for a longer --duration."
            )
        if errors:
            return Reason.SOURCE_FAILED, (
                f"None of {errors} stacks of {self._name} could be read whole in {self._seconds():.1f} s: they changed "
                "meanwhile, as they do while a program begins. Ask again, or for a longer --duration."
            )
        return Reason.SOURCE_FAILED, (
            f"No stack of {self._name} was read in {self._seconds():.1f} s: {self.reader} had no turn, as on a busy "
            "host, or it runs no Python code: its interpreter begins, or ends. Ask again."
        )

    def _seconds(self) -> float:
        return max(0, self._ended_ns - self._began_ns) / 1e9

    def _append_anchor(self, same_ns: int) -> None:
        known = anchor.Anchor(
            pid=self._target.process.id.pid,
            command=self._target.process.command,
            began_ns=self._began_ns,
            ended_ns=self._ended_ns,
            interval_ns=round(1e9 / self._sampling.hz),
            ended=self._target.ended,
            same_ns=same_ns,
            gone_ns=self._gone_ns,
            reader=self.reader,
        )
        fd = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(fd, anchor.encode(known))
        finally:
            os.close(fd)

    def _describe(self, recording: Recording, started_ns: int) -> None:
        """Waterfall, cost, and what had to be done to the target."""
        if self._resumed:
            recording.warnings.append(
                f"{self._name} was stopped when {self.reader} was killed, and was continued (SIGCONT)."
            )
        if not self._began_ns:
            return
        recording.waterfall = [
            Phase("lead", max(0, self._began_ns - started_ns)),
            Phase("window", max(0, self._ended_ns - self._began_ns)),
            Phase("writing", max(0, time.time_ns() - self._ended_ns)),
        ]
        recording.cost = self._cost()

    def _cost(self) -> Cost:
        """CPU time that it took from the host. The cost of its pauses for the job cannot be seen from outside."""
        pauses = "it paused the process for each" if self._sampling.native else "it never paused the process"
        how = f"{self._sampling.hz} samples a second; {pauses}"
        if self._cpu_seconds is None:
            return Cost(detail=how)
        share = 100 * self._cpu_seconds / max(self._seconds(), 1e-3)
        began = f", and {self._start_cpu_seconds:.2f} s before its first sample" if self._start_cpu_seconds else ""
        spent = f"{self._cpu_seconds:.2f} s, {share:.2g} % of one core{began}"
        detail = f"CPU time of {self.reader} beside the process, {spent}; {how}"
        return Cost(how="measured", seconds=self._cpu_seconds, detail=detail)

    async def _let_go(self, pyspy: asyncio.subprocess.Process) -> None:
        """py-spy has ended and its target runs."""
        if pyspy.returncode is None:
            await tool.interrupt(pyspy, sampling=False)  # nobody wants what it has
            await tool.ended(pyspy, _KILL_SECONDS)
        await tool.reap(pyspy)
        if self._sampling.native and pyspy.returncode and pyspy.returncode < 0:
            self._resumed = await self._target.resume_if_left_stopped()


async def _first_of(seconds: float, *waits: Coroutine[Any, Any, Any]) -> None:
    """Until one of them is done or the time is over."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _nothing() -> None:
    """No turn is held."""


def _end(status: int) -> str:
    try:
        return signal.Signals(-status).name if status < 0 else f"status {status}"
    except ValueError:
        return f"signal {-status}"
