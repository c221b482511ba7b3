"""The source of `docs/adding-a-source.md`: what a process has had of the CPU, read from /proc, as counters.

It is whole but small, and shows what every source needs: a declaration, an option that the process decides about, a
file that a killed daemon leaves behind for a retry, losses, and a lease that is given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any, ClassVar, Final

from profd.errors import ProfdError
from profd.gpu.holders import Holder, HolderKind
from profd.gpu.lease_keeper import LeaseKeeper
from profd.gpu.leases import Held
from profd.limits import CAPTURE_WINDOW_MAX_NS
from profd.model.capture import Loss, Options, Phase, RawFile, Reason, Recording, State
from profd.model.traits import Traits
from profd.sources.base import Offer, Plan, Session, Source
from profd.sources.declaration import (
    BY_PROCESS,
    SERVED,
    CommonAnswers,
    Declaration,
    Refuses,
    SamplingAnswers,
    TorchAnswers,
    Unserved,
    cannot_guard,
    without_server,
)
from profd.targets.identity import Accepted
from profd.targets.process import Process

HZ_DEFAULT: Final = 20.0
READINGS_MAX: Final = 10_000  # of one recording: what comes later is counted as lost
FULL: Final = "its file is full: readings are counted and not kept"
_SPARE_NS: Final = 10_000_000_000
_NO_OPERATORS: Final = Unserved("ticks reads /proc and sees no operators")

DECLARATION: Final = Declaration(
    name="ticks",
    rank=60,
    common=CommonAnswers(
        duration_ns=SERVED,
        iterations=Refuses("ticks sees no iterations. Give --duration."),
        start_at_ns=Unserved("ticks begins at once"),
        stacks=Unserved("ticks reads /proc and sees no calls"),
        c_calls=Unserved("ticks reads /proc and sees no calls"),
        max_overhead=cannot_guard("ticks"),
    ),
    torch=TorchAnswers(
        torch=_NO_OPERATORS,
        shapes=_NO_OPERATORS,
        memory=BY_PROCESS,
        modules=_NO_OPERATORS,
        flops=_NO_OPERATORS,
        gpu_fallback=_NO_OPERATORS,
    ),
    sampling=SamplingAnswers(sample_hz=SERVED, native=Unserved("ticks reads /proc and sees no calls")),
    server=without_server("ticks"),
    traits=Traits(steps=False, device_rows=False),
)


class TicksSource(Source):
    """CPU seconds, and with --memory resident bytes, of any process."""

    declaration: ClassVar[Declaration] = DECLARATION

    def __init__(self, leases: LeaseKeeper, readings_max: int = READINGS_MAX) -> None:
        self._leases = leases
        self._readings_max = readings_max

    def offer(self, process: Process) -> Offer:
        """Any process that lives and that nobody records."""
        if process.zombie:
            return Offer(False, "it has ended", "", Reason.TARGET_ENDED)
        held = self._leases.held(process.id)
        return Offer.held(held) if held is not None else Offer(True, concerns=False)

    def plan(self, process: Process, options: Options) -> Plan:
        """Kernel threads have no memory of their own; everything else is as declared."""
        unserved = {} if process.command else {"memory": "a kernel thread has none of its own"}
        window_ns = options.duration_ns or CAPTURE_WINDOW_MAX_NS
        return Plan(True, unserved=unserved, latency_ns=0, memory_bytes=0, deadline_ns=window_ns + _SPARE_NS)

    async def record(self, process: Process, options: Options, session: Session) -> Recording:
        """Read until the window is over, `session.stop` is set or the process ends; see Source."""
        try:
            lease = self._leases.take(process.id, Holder(HolderKind.PROFD, capture=session.capture))
        except Held as error:
            return Recording(State.BUSY, Reason.CAPTURE_RUNNING, str(error))
        try:
            with contextlib.closing(Accepted(process.id, process.uid)) as accepted:
                why = await asyncio.to_thread(accepted.hold)
                if why:
                    return Recording(State.REFUSED, Reason.NOT_PERMITTED, why)
                return await _Reader(process, options, session, accepted, self._readings_max).run()
        finally:
            self._leases.end(lease)
            self._leases.clear(process.id, lease.epoch)  # nothing of ours is in the process


class _Reader:
    def __init__(
        self, process: Process, options: Options, session: Session, accepted: Accepted, readings_max: int
    ) -> None:
        self._pid = process.id.pid
        self._options = options
        self._session = session
        self._accepted = accepted
        self._left = readings_max
        self._lost = 0
        self._file = session.directory / "ticks.json"

    async def run(self) -> Recording:
        files = [RawFile(str(self._file), "chrome")]
        begin_ns = time.time_ns()
        named = json.dumps({"ph": "M", "name": "process_name", "pid": self._pid, "args": {"name": "ticks"}})
        await asyncio.to_thread(self._write, f'{{"baseTimeNanoseconds": {begin_ns}, "traceEvents": [\n{named}')
        self._session.keep(files)  # from now on a retry finds it, whatever happens to the daemon
        self._session.report(State.RECORDING, "the window is open")
        ended = await self._read(begin_ns)
        end_ns = time.time_ns()
        await asyncio.to_thread(self._write, "]}\n")
        recording = Recording(files=files, start_ns=begin_ns, end_ns=end_ns)
        recording.waterfall = [Phase("window", end_ns - begin_ns)]
        if self._lost:
            recording.lost = [Loss("source", "too_many", self._lost)]
        if ended:
            recording.reason, recording.message = Reason.TARGET_ENDED, ended
        return recording

    async def _read(self, begin_ns: int) -> str:
        """Read again and again; a sentence if the process was over before the window."""
        period = 1 / (self._options.sample_hz or HZ_DEFAULT)
        window_ns = self._options.duration_ns or CAPTURE_WINDOW_MAX_NS
        while not self._session.stop.is_set() and time.time_ns() - begin_ns < window_ns:
            try:
                values = await asyncio.to_thread(self._values)
            except OSError:
                values = {}
            # What has been read is its only if it is still the same program: pids are used again, and programs exec.
            if not values or not await asyncio.to_thread(lambda: self._accepted.same):
                return self._accepted.moved_on()
            await asyncio.to_thread(self._add, values, time.time_ns() - begin_ns)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._session.stop.wait(), period)
        return ""

    def _values(self) -> dict[str, float]:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        hertz = os.sysconf("SC_CLK_TCK")
        values = {"user": int(fields[11]) / hertz, "system": int(fields[12]) / hertz}
        if self._options.memory:
            values["resident"] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        return values

    def _add(self, values: dict[str, float], since_ns: int) -> None:
        self._left -= 1
        if self._left < 0:
            if not self._lost:
                self._session.report(State.RECORDING, FULL)
            self._lost += 1
            return
        event: dict[str, Any] = {"ph": "C", "pid": self._pid, "tid": 0, "name": "ticks", "ts": since_ns / 1000}
        self._write(f",\n{json.dumps(event | {'args': values})}")

    def _write(self, text: str) -> None:
        try:
            with self._file.open("a") as file:
                file.write(text)
        except OSError as error:
            raise ProfdError(f"{self._file} cannot be written: {error.strerror}") from error
