"""A few pre-started worker processes; one job each at a time, in the order of `turns.py`.

The pool starts a few more while one user's jobs have all workers and another user waits; these end when they are idle.

Hostile bytes are decoded only there. A worker that dies, outstays its time or
outgrows its memory costs exactly the job it had, with a reason; the pool puts
another in its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from profd import limits
from profd.disk.space import Claim
from profd.errors import JobFailed, WorkerDied
from profd.fairness.shares import Share, Shares
from profd.fairness.to_the_end import to_the_end
from profd.kernel import identity as identities
from profd.limits import DISK_LOOK_SECONDS, WORKER_CPU_SECONDS, WORKER_JOB_SECONDS, WORKER_MEMORY_BYTES, MiB
from profd.targets.memory import MemoryLimits
from profd.workers import cpu, gate
from profd.workers.child import Child, WorkerGone, WorkerSettings
from profd.workers.turns import LASTING, NOBODY, OURS, JobKind, Turn, Turns
from profd.workers.watched import watched
from profd.workers.weights import Weights

JOBS_PER_WORKER: Final = 256  # then it is replaced: what native libraries leak goes with it
RSS_RECYCLE_BYTES: Final = 1024 * MiB  # after a job; above it the worker is replaced
_STARTS: Final = 3  # of one that is wanted
_IDLE_PAUSE_SECONDS: Final = 5.0
_JOBS: Final = Share(
    "jobs", "questions and imports", limits.JOBS_PER_UID_MAX, limits.JOBS_MAX, limits.JOBS_RESERVED, retry_seconds=5
)

log = logging.getLogger("profd.workers")

OnProgress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """Counts since the pool was opened, and what it holds now."""

    size: int
    idle: int
    running: int
    waiting: int
    jobs_done: int  # with a result
    jobs_failed: int  # with an error, a death or a timeout
    workers_started: int
    workers_killed: int  # timeouts, cancellations, broken frames
    workers_died: int  # by themselves, the kernel or an operator


class WorkerPool:
    """Runs jobs by name (`workers/jobs.py`) in other processes."""

    def __init__(
        self,
        size: int = 2,
        identity: identities.WorkerIdentity | None = None,
        memory_bytes: int = WORKER_MEMORY_BYTES,
        job_seconds: float = WORKER_JOB_SECONDS,
        jobs_per_worker: int = JOBS_PER_WORKER,
        gates: Path | None = None,
        *,
        known: Mapping[str, str],
        directories: Sequence[str] = (),
        beside: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`known`: where the job of each name lies. `gates`: a directory of the pool's own on the store's filesystem,
        which jobs need that name directories of traces in one of the arguments `directories`. `beside`: see `Gate`.
        """
        self.size = size
        self.claim: Callable[[int], Claim] | None = None  # of room for what a user's questions write aside
        self.on_waited: Callable[[JobKind, float], None] = lambda kind, seconds: None  # somebody had to, for a worker
        self._job_seconds = job_seconds
        self._jobs_per_worker = jobs_per_worker
        who = identity or identities.current()
        self._settings = WorkerSettings(who, memory_bytes, known, gates, tuple(directories), beside)
        # None stands for a place whose worker could not be started; the next job tries again.
        self._turns: Turns[Child | None] = Turns(size)
        self._jobs = Shares(_JOBS)
        self._weights = Weights()
        self._live: set[Child] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._growing = False
        self._quiet = asyncio.Event()  # no job runs
        self._quiet.set()
        self._running = 0
        self._done = self._failed = self._started = self._killed = self._died = 0

    async def open(self) -> list[str]:
        """Start all workers; returns what holds for them. Raises JobFailed if one cannot run."""
        if self._settings.gates:
            await asyncio.to_thread(gate.prepare, self._settings.gates, self._settings.identity)
        started = await asyncio.gather(*(self._start() for _ in range(self.size)), return_exceptions=True)
        for worker in started:
            if isinstance(worker, BaseException):
                raise worker  # `close()` ends the others
            self._free(worker)
        return next(iter(self._live)).confinement

    async def run(
        self,
        job: str,
        args: dict[str, Any],
        fds: Sequence[int] = (),
        on_progress: OnProgress | None = None,
        timeout: float | None = None,
        turn: Turn = OURS,
    ) -> dict[str, Any]:
        """One job in one worker; its result.

        `fds` are duplicated into the worker and stay the caller's. `timeout`
        (seconds, None: WORKER_JOB_SECONDS) counts from the start of the job,
        not of the wait for a worker. Raises the ProfdError that the job
        raised, JobFailed for every other end, Refused when too many of a user
        wait, Unavailable when the pool is closed. Cancelling kills the worker; a glance has GLANCE_LEFT_SECONDS to end
        by itself first.
        """
        # What a capture has recorded is never refused: captures are bounded where they begin.
        with (
            contextlib.nullcontext() if turn.kind in (JobKind.CAPTURE, JobKind.PUSHED) else self._jobs.take(turn.holder)
        ):
            return await self._in_turn(turn, job, args, fds, on_progress, timeout)

    def crowded(self, uid: int) -> bool:
        """Whether a job of another user waits."""
        return self._turns.crowded(uid)

    def awaited(self) -> bool:
        """Whether somebody waits for an answer, or did so a moment ago."""
        return self._weights.awaited()

    async def _in_turn(
        self,
        turn: Turn,
        job: str,
        args: dict[str, Any],
        fds: Sequence[int],
        on_progress: OnProgress | None,
        timeout: float | None,
    ) -> dict[str, Any]:
        worker = await self._take(turn, job)
        self._running += 1
        self._quiet.clear()
        kept: Child | None = None
        try:
            with self._weights.during(worker.pid, lasts=turn.kind in LASTING):
                attempt = self._attempt(worker, turn, job, args, fds, on_progress, timeout)
                result = await (_left_to_end(attempt) if turn.kind is JobKind.GLANCE else attempt)
            self._done += 1
            kept = worker if self._good(worker) else None
            return result
        except BaseException:
            self._failed += 1
            kept = worker if worker.idle and self._good(worker) else None
            raise
        finally:
            self._running -= 1
            if not self._running:
                self._quiet.set()
            self._give_back(worker, kept, turn)

    async def close(self) -> None:
        """End all workers at once. Jobs that run fail; callers drain before."""
        self._closed = True
        self._turns.close()
        self._weights.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for worker in self._live:
            worker.end()
        # Closing a socket somebody still reads from would leave the reader waiting for ever.
        await self._quiet.wait()
        await asyncio.gather(*(worker.kill() for worker in self._live))
        self._live.clear()

    def statistics(self) -> PoolStatistics:
        """Counts of the pool, and what it holds now."""
        return PoolStatistics(
            self.size + self._turns.grown,
            self._turns.free,
            self._running,
            self._turns.waiting,
            self._done,
            self._failed,
            self._started,
            self._killed,
            self._died,
        )

    @property
    def pids(self) -> list[int]:
        """The pids of the workers that live now."""
        return sorted(worker.pid for worker in self._live)

    async def _take(self, turn: Turn, job: str) -> Child:
        worker = await self._relieved(turn)
        try:
            self._turns.check_open()
            if worker is not None:
                worker.unwatch()
                if worker.alive:
                    return worker
                await self._bury(worker)
            return await self._start_anew()
        except BaseException as error:
            self._turns.done(turn)
            self._turns.put(None)
            if isinstance(error, JobFailed):
                raise JobFailed(f"the job {job!r} could not be run: {error}") from error
            raise

    async def _relieved(self, turn: Turn) -> Child | None:
        """A place when it is the user's turn; a new one where others have had all places for too long."""
        began = time.monotonic()
        waiting = asyncio.get_running_loop().create_task(self._relieve(turn.holder.uid))
        try:
            return await self._turns.get(turn)
        finally:
            waiting.cancel()
            self.on_waited(turn.kind, time.monotonic() - began)

    async def _relieve(self, uid: int) -> None:
        while True:
            await asyncio.sleep(limits.WORKERS_EXTRA_WAIT_SECONDS)
            if self._turns.starves(uid) and not self._growing and self._turns.grown < limits.WORKERS_EXTRA_MAX:
                self._growing = True
                self._later(self._grow())

    async def _grow(self) -> None:
        try:
            left = await asyncio.to_thread(MemoryLimits().left, os.getpid())
            if left is None or left >= self._settings.memory_bytes // 2:
                self._turns.grow(self._watched(await self._start()))
        except JobFailed as error:
            log.warning("no further worker", extra={"why": str(error)})
        finally:
            self._growing = False

    def _shrink(self) -> None:
        """End workers that were added and are idle."""
        while not self._closed and (spare := self._turns.shrink()) is not None:
            if spare[0] is not None:
                self._later(self._bury(spare[0]))

    def _shrink_later(self) -> None:
        if self._turns.grown and not self._closed:
            asyncio.get_running_loop().call_later(limits.WORKERS_EXTRA_IDLE_SECONDS, self._shrink)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attempt(
        self,
        worker: Child,
        turn: Turn,
        job: str,
        args: dict[str, Any],
        fds: Sequence[int],
        on_progress: OnProgress | None,
        timeout: float | None,
    ) -> dict[str, Any]:
        seconds = self._job_seconds if timeout is None else timeout
        try:
            async with _admitted(worker.gate, args) as own, asyncio.timeout(seconds) as limit:
                answer = worker.run(job, own, fds, on_progress, lasts=turn.kind in LASTING)
                running = self._within_room(worker, turn, answer)
                return await cpu.within(cpu.allowed(job, fds), worker.pid, running)
        except TimeoutError:
            if not limit.expired():
                raise
            raise JobFailed(f"the job {job!r} took longer than {seconds:g} s and was stopped") from None
        except WorkerGone as error:
            self._died += 1
            log.warning("worker died", extra={"job": job, "how": str(error), "stderr": worker.said()[-2000:]})
            raise WorkerDied(f"the worker running {job!r} {error}; `profctl retry` may help") from error

    async def _within_room(
        self, worker: Child, turn: Turn, running: Coroutine[Any, Any, dict[str, Any]]
    ) -> dict[str, Any]:
        """The answer of a job, which is ended where what it writes aside has no room. Raises what `Claim.hold` does.

        What a capture has recorded is never refused, and writes nothing there.
        """
        if self.claim is None or worker.gate is None or turn.kind in (JobKind.CAPTURE, JobKind.PUSHED):
            return await running
        own = worker.gate
        with self.claim(turn.holder.uid) as claim:

            def look() -> None:
                if written := own.scratch_bytes():
                    claim.hold(written, 1)

            return await watched(running, DISK_LOOK_SECONDS, lambda: to_the_end(asyncio.to_thread(look)))

    def _good(self, worker: Child) -> bool:
        worn = worker.jobs >= self._jobs_per_worker or worker.rss_bytes > RSS_RECYCLE_BYTES
        worn = worn or worker.cpu_seconds > WORKER_CPU_SECONDS / 2
        return worker.alive and not worn and not worker.exhausted

    def _give_back(self, worker: Child, kept: Child | None, turn: Turn) -> None:
        if kept is not None or self._closed:
            if kept is not None and not self._closed:
                self._free(kept, turn.holder.uid)  # before `done`: the user's next job takes this one
                self._shrink_later()
            self._turns.done(turn)
            return
        if worker.alive and not worker.idle:
            self._killed += 1
        self._later(self._replace(worker, turn))

    async def _replace(self, worker: Child, turn: Turn) -> None:
        """Put a fresh worker in the place of this one, which counts as its user's until then.

        Otherwise who abandons one question after another has all workers end, whatever that user's share.
        """
        fresh: Child | None = None
        try:
            await self._bury(worker)
            fresh = await self._fresh()
        finally:
            self._free(fresh, turn.holder.uid)
            self._turns.done(turn)
            self._shrink_later()

    def _free(self, worker: Child | None, uid: int = NOBODY) -> None:
        """A place is free; should its worker end before the next job, another takes its place."""
        self._turns.put(worker if worker is None or self._closed else self._watched(worker), uid)

    def _watched(self, worker: Child) -> Child:
        worker.watch(partial(self._lost, worker))
        return worker

    def _lost(self, worker: Child) -> None:
        worker.unwatch()
        if self._turns.remove(worker) and not self._closed:  # else a job has it by now, and will see
            self._died += 1
            log.warning("an idle worker ended", extra={"pid": worker.pid})
            self._later(self._renew(worker))

    async def _renew(self, worker: Child) -> None:
        """Have a worker wait in the place of one that ended idle; a job that comes before starts its own."""
        await self._bury(worker)
        self._turns.put(None)
        if not worker.jobs:  # what ended it may end each one that waits
            await asyncio.sleep(_IDLE_PAUSE_SECONDS)
        if self._turns.remove(None):
            self._free(await self._fresh())

    async def _fresh(self) -> Child | None:
        """A new worker; None where none can be started, which is logged."""
        try:
            return await self._start_anew()
        except JobFailed as error:
            log.error("no new worker", extra={"why": str(error)})
            return None

    async def _start_anew(self) -> Child:
        """Try again where a worker was killed before it was ready: a job that cannot be repeated would suffer."""
        for _ in range(_STARTS - 1):
            try:
                return await self._start()
            except JobFailed as error:
                log.warning("a worker did not start", extra={"why": str(error)})
        return await self._start()

    async def _start(self) -> Child:
        worker = await Child.start(self._settings)
        self._started += 1
        self._live.add(worker)
        return worker

    async def _bury(self, worker: Child) -> None:
        with contextlib.suppress(OSError):
            await worker.kill()
        self._live.discard(worker)  # not before: `close` ends what this was cancelled in


async def _left_to_end(attempt: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """The same. Where it is cancelled, it goes on for a moment: another worker would take longer to start."""
    task = asyncio.ensure_future(attempt)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=limits.GLANCE_LEFT_SECONDS)
        raise
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # seen, whatever is raised instead


@contextlib.asynccontextmanager
async def _admitted(own: gate.Gate | None, args: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """The job's arguments as its worker sees them, and what they name within its reach."""
    if own is None:
        yield args
        return
    admitting = asyncio.ensure_future(asyncio.to_thread(own.admit, args))
    done = False
    try:
        yield await asyncio.shield(admitting)
        done = True
    finally:
        # A caller that is cancelled twice leaves the rest to the end of the worker.
        await asyncio.wait([admitting])
        await asyncio.to_thread(own.dismiss, done=done)
