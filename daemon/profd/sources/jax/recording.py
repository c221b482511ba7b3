"""One recording through a profiler server: a window, or several with gaps between them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profproto.profiler import profiler_pb2 as pb

from profd.errors import Exhausted
from profd.fairness.few import Places
from profd.fairness.shares import Holder
from profd.fairness.threads import in_thread
from profd.limits import (
    JAX_HANDED_BYTES_PER_SECOND,
    JAX_RECORDING_BYTES_MAX,
    JAX_RESPONSE_BYTES_MAX,
    JAX_WINDOWS_MAX,
    MiB,
)
from profd.model.capture import Cost, Options, Phase, RawFile, Reason, Recording, State
from profd.sources.base import Session
from profd.sources.jax.answer import write
from profd.sources.jax.listeners import ListeningPort
from profd.sources.jax.planning import SECOND, STOP_SECONDS, WINDOW_LEAST_NS, Windows
from profd.sources.jax.service import Failure, Service, ServiceFailed
from profd.targets.identity import Accepted, Standing
from profd.targets.looks import seen
from profd.targets.process import Process

FORMAT: Final = "xspace"
CONTINUOUS_SINCE: Final = "jax 0.10.2 and tensorflow 2.21 have it, earlier ones were not tried"
_CONNECT_SECONDS: Final = 10.0
_TELL_SECONDS: Final = 1.0
_DEATH_SECONDS: Final = 2.0
_DEATH_STEP_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Window:
    """One that was recorded. Unix ns; `collected_ns` is when the process had handed it over."""

    began_ns: int
    ended_ns: int
    collected_ns: int
    path: Path | None  # None: it holds no events


class JaxRecorder:
    """Records once. `accepted` stays the caller's to close; `gate`: for its user's requests.

    `owe`: so many bytes were handed over; the seconds until its user may have more. `listens`: whether the server's
    sockets are still the process's, and nobody else's at that port.
    """

    def __init__(
        self,
        process: Process,
        server: ListeningPort,
        options: Options,
        cut: Windows,
        session: Session,
        accepted: Accepted,
        gate: Places,
        owe: Callable[[int], float] = lambda handed: 0.0,
        listens: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._name = f"pid {process.id.pid}"
        self._server = server
        self._options = options
        self._cut = cut
        self._session = session
        self._accepted = accepted
        self._gate = gate
        self._owe = owe
        self._listens = listens
        self._windows: list[Window] = []
        self._bytes = 0

    async def run(self) -> Recording:
        """Record; nothing of ours is left in the process, also when this is cancelled."""
        began_ns = time.time_ns()
        service = Service(self._server.address)
        try:
            await self._wait_for_start()
            if self._session.stop.is_set():
                message = f"stopped before {self._name} was asked for anything"
                return Recording(State.CANCELLED, Reason.CANCELLED_BY_USER, message)
            recording = await self._connected(service)
        finally:
            await service.close()
        self._describe(recording, began_ns)
        return recording

    async def _connected(self, service: Service) -> Recording:
        """Record on one connection. It leads to the process, which listens there behind its making as before."""
        try:
            await self._check()
            await service.connect(_CONNECT_SECONDS)
            if self._listens is not None and not await self._listens():
                raise ServiceFailed(Failure.GONE, f"port {self._server.port} is not its own any more")
        except ServiceFailed as error:
            return await self._failed(error)
        return await self._record(service)

    async def _wait_for_start(self) -> None:
        if self._options.start_at_ns is None:
            return
        self._session.report(State.ARMED, "waiting for the agreed start")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0, self._options.start_at_ns - time.time_ns()) / SECOND):
                await self._session.stop.wait()

    async def _record(self, service: Service) -> Recording:
        """Window after window, until the time is over or one fails."""
        first_ns = time.time_ns()
        try:
            while (window_ns := self._next_window_ns(first_ns)) > 0:
                if not await self._turn():
                    break
                try:
                    self._windows.append(await self._window(service, window_ns))
                    self._session.keep(self._files())  # a daemon that is killed leaves them for `profctl retry`
                finally:
                    self._gate.release()
                if self._bytes > JAX_RECORDING_BYTES_MAX:
                    return self._ended(
                        Reason.OVER_LIMIT,
                        f"the windows of {self._name} exceed {JAX_RECORDING_BYTES_MAX // MiB} MiB; "
                        "those up to there are kept. Capture a shorter time",
                    )
                await self._rest(first_ns)
        except ServiceFailed as error:
            return await self._failed(error)
        return self._ended(Reason.NONE, "")

    async def _paid(self, state: State) -> None:
        """Wait until its user's processes may hand over more, or the capture is stopped."""
        while (seconds := self._owe(0)) > 0 and not self._session.stop.is_set():
            most = JAX_HANDED_BYTES_PER_SECOND // MiB
            self._session.report(
                state, f"waiting for {seconds:.1f} s: processes of one user may hand over {most} MiB a second"
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._session.stop.wait()

    async def _turn(self) -> bool:
        """Wait for the gate; False if the capture was stopped meanwhile."""
        await self._paid(State.ARMED)
        if self._gate.locked():
            self._session.report(State.ARMED, "waiting until other captures have handed over their windows")
        turn = asyncio.create_task(self._gate.acquire())
        stop = asyncio.create_task(self._session.stop.wait())
        try:
            await asyncio.wait({turn, stop}, return_when=asyncio.FIRST_COMPLETED)
            stopped = self._session.stop.is_set()
            if stopped and turn.done():
                self._gate.release()
            return not stopped
        except asyncio.CancelledError:
            if turn.done():
                self._gate.release()
            raise
        finally:
            stop.cancel()
            turn.cancel()

    def _next_window_ns(self, first_ns: int) -> int:
        """Length of the next window; 0 when it was the last."""
        if self._session.stop.is_set() or len(self._windows) >= JAX_WINDOWS_MAX:
            return 0
        if not self._windows:
            return min(self._cut.one_ns, self._cut.total_ns)
        left_ns = first_ns + self._cut.total_ns - time.time_ns()
        if self._cut.single or left_ns < WINDOW_LEAST_NS:
            return 0
        return min(self._cut.one_ns, left_ns)

    async def _rest(self, first_ns: int) -> None:
        """Until the next window is due: many windows are spread over the time asked for."""
        last = self._windows[-1]
        due_ns = last.began_ns + self._cut.period_ns
        if self._cut.single or due_ns >= first_ns + self._cut.total_ns:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0, due_ns - time.time_ns()) / SECOND):
                await self._session.stop.wait()

    async def _window(self, service: Service, window_ns: int) -> Window:
        """One request: its window and its collection."""
        number = len(self._windows) + 1
        label = "window" if self._cut.single else f"window {number}"
        session_id = f"profd-{secrets.token_hex(8)}"  # never one again: Terminate of an unknown id sticks to it
        self._session.report(State.RECORDING, f"{label} of {window_ns / SECOND:.2g} s")
        await self._check()
        began_ns = time.time_ns()
        collect = self._cut.collect_seconds(window_ns)
        call = asyncio.create_task(
            service.profile(self._request(session_id, window_ns), window_ns / SECOND + collect), name="jax-window"
        )
        async with self._stoppable(call) as stop:
            await asyncio.wait({call, stop}, timeout=window_ns / SECOND, return_when=asyncio.FIRST_COMPLETED)
            if stop.done() and not call.done():
                await service.terminate(session_id)
            ended_ns = time.time_ns()
            answer = await self._collect(call, stop, label)
        return await self._kept(began_ns, ended_ns, answer, f"window-{number:03}.xplane.pb")

    @contextlib.asynccontextmanager
    async def _stoppable(self, call: asyncio.Task[bytes]) -> AsyncIterator[asyncio.Task[bool]]:
        """A task that ends when the capture is stopped; it and the call are over behind the block."""
        stop = asyncio.create_task(self._session.stop.wait())
        try:
            yield stop
        finally:
            stop.cancel()
            call.cancel()
            await asyncio.gather(stop, call, return_exceptions=True)

    async def _kept(self, began_ns: int, ended_ns: int, answer: bytes, name: str) -> Window:
        """An answer that has just come, in a file of the journal where it has anything."""
        self._owe(len(answer))
        await self._check()
        collected_ns = time.time_ns()
        path = self._session.directory / name
        try:
            self._session.claim.hold(self._bytes, len(answer), len(answer))
        except Exhausted as error:
            raise ServiceFailed(Failure.NO_ROOM, str(error)) from error
        size = await in_thread(Holder.of_user(self._accepted.uid), write, answer, path)
        self._bytes += size
        self._session.claim.wrote(self._bytes)
        return Window(began_ns, min(ended_ns, collected_ns), collected_ns, path if size else None)

    async def _check(self) -> None:
        """Before it is told anything, and before what it has said is kept. Raises ServiceFailed."""
        if await seen(self._accepted, self._accepted.standing) is Standing.CHANGED:
            raise ServiceFailed(Failure.GONE, self._accepted.moved_on())

    async def _collect(self, call: asyncio.Task[bytes], stop: asyncio.Task[bool], label: str) -> bytes:
        """Wait for the answer and say that it is waited for. A stop bounds the wait."""
        since = time.monotonic()
        stopped_at: float | None = None
        # The states of a capture never go back: draining is the last window only.
        state = State.DRAINING if self._cut.single else State.RECORDING
        while not call.done():
            now = time.monotonic()
            if stop.done():
                stopped_at = now if stopped_at is None else stopped_at
                if now - stopped_at > STOP_SECONDS:
                    raise ServiceFailed(Failure.TIMEOUT, f"not handed over {STOP_SECONDS:.0f} s after the stop")
            if state is State.DRAINING or now - since >= _TELL_SECONDS:  # of many windows most are there at once
                self._session.report(state, f"the process hands over its {label} ({now - since:.0f} s so far)")
            waits = {call} if stop.done() else {call, stop}
            await asyncio.wait(waits, timeout=_TELL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        return call.result()

    def _request(self, session_id: str, window_ns: int) -> pb.ProfileRequest:
        window_ms = max(1, -(-window_ns // 1_000_000))
        return pb.ProfileRequest(
            duration_ms=window_ms,
            tools=["xplane.pb"],
            session_id=session_id,
            host_name="profd",
            emit_xspace=True,
            opts=pb.ProfileOptions(
                version=1,
                host_tracer_level=2,
                device_tracer_level=1,
                python_tracer_level=1 if self._options.stacks else 0,
                enable_hlo_proto=True,
                duration_ms=window_ms,
            ),
        )

    async def _failed(self, error: ServiceFailed) -> Recording:
        match error.failure:
            case Failure.BUSY:
                return self._ended(
                    Reason.OTHER_PROFILER,
                    f"another profiling session is active in {self._name} (its own jax.profiler, or TensorBoard); "
                    "try again when it is over",
                )
            case Failure.TOO_LARGE:
                return self._ended(
                    Reason.OVER_LIMIT,
                    f"a window of {self._name} has more than {JAX_RESPONSE_BYTES_MAX // MiB} MiB; "
                    "ask for a shorter --duration",
                )
            case Failure.TIMEOUT:
                return self._ended(
                    Reason.TIMEOUT,
                    f"{self._name} did not hand over its window in time and may still be collecting "
                    "(other captures of it are refused meanwhile); ask for a shorter --duration",
                )
            case Failure.NO_ROOM:
                return self._ended(Reason.DISK_FULL, str(error))
            case Failure.UNKNOWN_METHOD if self._cut.last_ns:
                return Recording(
                    State.REFUSED,
                    Reason.NOT_HONOURED,
                    f"the profiler server of {self._name} has no continuous profiling, which --last needs: "
                    f"{CONTINUOUS_SINCE}. Without --last it can be captured",
                )
        if await self._died():
            ended = self._accepted.standing() is Standing.ENDED
            message = f"{self._name} ended while it was recorded" if ended else self._accepted.moved_on()
            return self._ended(Reason.TARGET_ENDED, message)
        what = "broke the connection" if error.failure is Failure.GONE else "refused"
        return self._ended(Reason.SOURCE_FAILED, f"the profiler server of {self._name} {what} ({error})")

    async def _died(self) -> bool:
        """It has ended, or its program has: a connection ends a little before its process does."""
        until = time.monotonic() + _DEATH_SECONDS
        while self._accepted.same or self._accepted.silent:
            if time.monotonic() > until:
                return False
            await asyncio.sleep(_DEATH_STEP_SECONDS)
        return True

    def _ended(self, reason: Reason, message: str) -> Recording:
        """The outcome, whatever ended the recording."""
        files = self._files()
        if files:
            kept = f"; the {len(files)} windows before it are kept" if reason is not Reason.NONE else ""
            return Recording(reason=reason, message=message + kept, files=files)
        if reason is Reason.OTHER_PROFILER:
            return Recording(State.BUSY, reason, message)
        if reason is not Reason.NONE:
            return Recording(State.FAILED, reason, message)
        if self._session.stop.is_set():
            message = f"stopped before {self._name} had recorded anything"
            return Recording(State.CANCELLED, Reason.CANCELLED_BY_USER, message)
        return Recording(
            State.FAILED,
            Reason.NO_FILE,
            f"{self._name} recorded no events: it ran nothing of JAX or TensorFlow in the window; "
            "look what it does with profctl where, or ask for a longer --duration",
        )

    def _files(self) -> list[RawFile]:
        return [RawFile(str(window.path), FORMAT) for window in self._windows if window.path]

    def _gap_before_ns(self) -> int:
        """The gap between the time asked for and the first window."""
        return 0

    def _describe(self, recording: Recording, began_ns: int) -> None:
        """Times, gaps and cost."""
        if not self._windows:
            return
        first, last = self._windows[0], self._windows[-1]
        recorded_ns = sum(window.ended_ns - window.began_ns for window in self._windows)
        collecting_ns = sum(window.collected_ns - window.ended_ns for window in self._windows)
        recording.start_ns, recording.end_ns = first.began_ns, last.ended_ns
        recording.waterfall = [
            Phase("lead", max(0, first.began_ns - began_ns)),
            Phase("window", recorded_ns),
            Phase("collecting", collecting_ns),
        ]
        recording.cost = Cost(
            how="measured",
            seconds=collecting_ns / SECOND,
            detail=f"the process collected for {collecting_ns / SECOND:.2f} s after {recorded_ns / SECOND:.2f} s "
            "of recording",
        )
        gaps = len(self._windows) - 1
        missing_ns = last.ended_ns - first.began_ns - recorded_ns
        before_ns = self._gap_before_ns()
        if gaps or before_ns:
            recording.waterfall.append(Phase("gaps", before_ns + missing_ns))
        if gaps:
            between = "gap" if gaps == 1 else f"{gaps} gaps"
            recording.warnings.append(
                f"{len(self._windows)} windows of together {recorded_ns / SECOND:.2f} s were recorded; what ran in the "
                f"{between} between them ({missing_ns / SECOND:.2f} s) is not in the trace"
            )
        if len(self._windows) >= JAX_WINDOWS_MAX and self._cut.open_ended:
            recording.warnings.append(f"ended by itself after {JAX_WINDOWS_MAX} windows, the most of one capture")
