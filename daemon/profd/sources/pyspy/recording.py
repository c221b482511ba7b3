"""One recording with py-spy, from its start to the file it leaves."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import signal
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from profd.capture.model import Cost, Reason, Recording, State
from profd.sources.base import Session
from profd.sources.pyspy import tool
from profd.sources.pyspy.target import Target
from profd.targets.process import Process

START_SECONDS: Final = 60.0  # py-spy reads the symbols of the interpreter first
WRITE_SECONDS: Final = 120.0  # it writes everything at the end
FILE_BYTES_MAX: Final = 1 << 30
_KILL_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.25
_SPARE_SECONDS: Final = 5  # py-spy ends by itself so long after the window, should nobody end it
_COUNTS: Final = re.compile(r"Samples: (\d+) Errors: (\d+)")
_ERRORS_WORTH_SAYING: Final = 0.01


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample: how long, how often, and whether native frames are unwound."""

    window_ns: int
    hz: int
    native: bool
    start_at_ns: int | None = None


class Recorder:
    """Runs py-spy once on one process. `run` is called once."""

    def __init__(self, program: Path, process: Process, sampling: Sampling, session: Session) -> None:
        self._program = program
        self._sampling = sampling
        self._session = session
        self._target = Target(process)
        self._name = f"process {process.id.pid}"
        self._file = session.directory / "samples.json"
        self._began = asyncio.Event()
        self._began_ns = 0
        self._ended_ns = 0
        self._said: deque[str] = deque()  # what py-spy said, both streams

    async def run(self) -> Recording:
        """Record; the target is running again whatever happens, also when this is cancelled."""
        if await self._stopped_before_start():
            return Recording(State.CANCELLED, Reason.CANCELLED_BY_USER, f"{self._name} was not touched.")
        refusal = self._refusal()
        if refusal is not None:
            return refusal
        self._session.report(State.ARMED, "starting py-spy")
        started_ns = time.time_ns()
        try:
            pyspy = await tool.spawn(self._program, self._arguments(), FILE_BYTES_MAX)
        except OSError as error:
            return Recording(State.FAILED, Reason.SOURCE_FAILED, f"py-spy could not be started: {error}.")
        try:
            recording = await self._supervise(pyspy)
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
        if not self._target.alive():
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

    def _arguments(self) -> list[str]:
        seconds = math.ceil(self._sampling.window_ns / 1e9) + _SPARE_SECONDS
        return [
            "record",
            *("--pid", str(self._target.process.id.pid)),
            *("--format", "chrometrace", "--output", str(self._file)),
            *("--rate", str(self._sampling.hz), "--duration", str(seconds)),
            # Without --idle a blocked thread seems to go on with what it did before;
            # --function gives the first line of functions, as torch.profiler names them.
            *("--idle", "--threads", "--function", "--full-filenames"),
            "--native" if self._sampling.native else "--nonblocking",
        ]

    async def _supervise(self, pyspy: asyncio.subprocess.Process) -> Recording:
        readers = [
            asyncio.create_task(tool.last_lines(stream, self._heard))
            for stream in (pyspy.stdout, pyspy.stderr)
            if stream is not None
        ]
        how = "paused for every sample" if self._sampling.native else "never paused: read from outside"
        recording.cost = Cost(how="estimated", detail=f"{how}, {self._sampling.hz} samples a second")

    async def _let_go(self, pyspy: asyncio.subprocess.Process) -> None:
        """py-spy has ended and its target runs."""
        if pyspy.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                pyspy.send_signal(signal.SIGINT)
            if not await tool.ended(pyspy, _KILL_SECONDS):
                with contextlib.suppress(ProcessLookupError):
                    pyspy.kill()
                await pyspy.wait()
        if self._sampling.native and pyspy.returncode and pyspy.returncode < 0:
            await self._target.resume_if_left_stopped()


async def _first_of(seconds: float, *waits: Coroutine[Any, Any, Any]) -> None:
    """Until one of them is done or the time is over."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _end(status: int) -> str:
    try:
        return signal.Signals(-status).name if status < 0 else f"status {status}"
    except ValueError:
        return f"signal {-status}"
