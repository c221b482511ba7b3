"""The capture manager with everything real but the RPC edge: table, sources, workers, store, journal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from profd.capture.death import DeathWatch
from profd.capture.estimate import HostHeadroom
from profd.capture.manager import CaptureManager
from profd.capture.planner import ManagerSettings, Request, TargetPlan
from profd.capture.switch import Switch
from profd.importing.recordings import Recordings
from profd.journal.journal import Journal
from profd.model.capture import Options, Reason, State
from profd.questions.jobs import DIRECTORIES, INDEXES, JOBS
from profd.sources.pyspy.source import PySpySource
from profd.store.captures import CaptureRecords
from profd.store.store import Store
from profd.targets.selector import Selector
from profd.targets.table import ProcessTable
from profd.workers.pool import WorkerPool

from tests.support import other_program, python_jobs
from tests.support.captures import AuditList, ended, needs_ptrace, open_ended, person, request, until
from tests.support.other_program import NOBODY, needs_setuid
from tests.support.python_jobs import SAMPLED_NS
from tests.support.waiting import comes, eventually

ME = person(os.geteuid(), "me", admin=False)


@dataclass
class Parts:
    """What a test looks at."""

    manager: CaptureManager
    store: Store
    pool: WorkerPool
    root: Path


@contextlib.asynccontextmanager
async def real_parts(root: Path) -> AsyncIterator[Parts]:
    table = ProcessTable()
    pool = WorkerPool(1, gates=root / "gates", known=JOBS, directories=DIRECTORIES, beside=INDEXES)
    await pool.open()
    store = Store(root)
    source = PySpySource()
    await source.open()
    manager = CaptureManager(
        sources=[source],
        table=table,
        records=CaptureRecords(root),
        storing=Recordings(store, lambda uid: pool.run),
        journal=Journal(root / "journal"),
        audit=AuditList(),
        switch=Switch(root / "disabled"),
        headroom=HostHeadroom(root),
        ended=DeathWatch(table),
        settings=ManagerSettings("host", own_pids=lambda: [os.getpid(), *pool.pids]),
    )
    await manager.open()
    try:
        yield Parts(manager, store, pool, root)
    finally:
        await manager.close(60)
        await source.close()
        await pool.close()
        store.close()


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    async with real_parts(tmp_path) as made:
        yield made


@needs_ptrace
@pytest.mark.slow
async def test_a_python_process_is_sampled_and_stored(parts: Parts) -> None:
    with python_jobs.running(python_jobs.SPIN) as job:
        record = await parts.manager.start(ME, request(job.pid, seconds=SAMPLED_NS / 1e9))
        record = await ended(parts.manager, record.id)
    target = record.targets[0]
    assert (target.state, target.reason, target.source) == (State.STORED, Reason.NONE, "pyspy"), target.message
    assert target.events
    assert target.events > 0
    assert [trace.id for trace in parts.store.of_capture(record.id)] == [target.trace]
    await parts.manager._book.flush()
    assert list((parts.root / "journal").iterdir()) == []
    assert {phase.name for phase in target.waterfall} >= {"window", "decode", "store"}


@needs_ptrace
@pytest.mark.slow
async def test_two_captures_at_once_and_one_busy(parts: Parts) -> None:
    with python_jobs.running(python_jobs.SPIN) as one, python_jobs.running(python_jobs.SPIN) as two:
        first = await parts.manager.start(ME, open_ended(one.pid))
        async with held(parts.manager, first.id):
            second = await parts.manager.start(ME, request(two.pid, seconds=SAMPLED_NS / 1e9))
            third = await parts.manager.start(ME, request(one.pid, seconds=SAMPLED_NS / 1e9))
            assert (third.state, third.targets[0].reason) == (State.BUSY, Reason.CAPTURE_RUNNING)
            assert (await ended(parts.manager, second.id)).state is State.STORED
            await until(parts.manager, first.id, lambda r: r.state is State.RECORDING)
            parts.manager.stop(ME, first.id)
        # Stopped before py-spy had a sample it is cancelled.
        assert (await ended(parts.manager, first.id)).state in (State.STORED, State.CANCELLED)


@contextlib.asynccontextmanager
async def held(manager: CaptureManager, capture: str) -> AsyncIterator[None]:
    """With its client there: an open-ended capture ends soon where that is gone."""

    async def watch() -> None:
        async for _ in manager.watch(ME, capture, lease=True):
            pass

    watching = asyncio.ensure_future(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait({watching})


@needs_ptrace
@pytest.mark.slow
async def test_a_process_that_ends_is_told_in_a_terminal_state(parts: Parts) -> None:
    with python_jobs.running(python_jobs.SPIN) as job:
        record = await parts.manager.start(ME, open_ended(job.pid))
        async with held(parts.manager, record.id):
            await until(parts.manager, record.id, lambda r: r.state is State.RECORDING)
            job.kill()
            record = await ended(parts.manager, record.id)
    assert record.state in (State.PARTIAL, State.FAILED)
    assert record.targets[0].reason is Reason.TARGET_ENDED


@needs_setuid
@pytest.mark.slow
@pytest.mark.parametrize("native", [False, True])
async def test_a_window_that_begins_later_is_of_the_program_that_was_accepted(parts: Parts, native: bool) -> None:
    nobody = person(NOBODY, "nobody")
    with other_program.target() as target:
        begins = time.time_ns() + 2_000_000_000
        asked = request(target.job.pid, seconds=30, start_at_ns=begins, native=native)
        record = await parts.manager.start(nobody, asked)
        await until(parts.manager, record.id, lambda r: r.state is State.ARMED)
        await asyncio.to_thread(target.say, "setuid")  # in its window, on a slow machine
        record = await ended(parts.manager, record.id)
    target_record = record.targets[0]
    assert (target_record.state, target_record.reason) == (State.FAILED, Reason.TARGET_ENDED), target_record.message
    assert "another program" in target_record.message
    assert parts.store.newest_first() == []
    await parts.manager._book.flush()
    assert list((parts.root / "journal").iterdir()) == []


@needs_ptrace
@pytest.mark.slow
async def test_a_killed_worker_costs_one_try(parts: Parts) -> None:
    with python_jobs.running(python_jobs.SPIN) as job:
        # GIVEN a worker that can do nothing
        (worker,) = parts.pool.pids
        os.kill(worker, signal.SIGSTOP)
        record = await parts.manager.start(ME, request(job.pid, seconds=SAMPLED_NS / 1e9))
        await eventually(lambda: parts.pool.statistics().running)
        # WHEN it is killed
        os.kill(worker, signal.SIGKILL)
        record = await ended(parts.manager, record.id)
        assert (record.state, record.targets[0].reason) == (State.FAILED, Reason.WORKER_DIED)
        assert parts.store.newest_first() == []
    # THEN the raw data is still there, long after its process
    await parts.manager.retry(ME, record.id)
    record = await ended(parts.manager, record.id)
    assert record.state is State.STORED, record.targets[0].message


@needs_ptrace
@pytest.mark.slow
async def test_children_are_included(parts: Parts) -> None:
    launcher = "import subprocess, sys\n" + f"child = subprocess.Popen([sys.executable, '-c', {python_jobs.SPIN!r}])\n"
    launcher += "child.wait()\n"
    with python_jobs.running(launcher) as job:
        asked = Request(Selector(pids=(job.pid,), children=True), Options(duration_ns=300_000_000))

        async def both() -> list[TargetPlan] | None:  # on a busy host a list may miss one
            plans = await parts.manager.planner.estimate(ME, asked)
            return plans if len(plans) == 2 else None

        plans = await comes(both)
        child = next(plan.target.pid for plan in plans if plan.target.pid != job.pid)
        os.kill(child, 9)


async def test_death_is_noticed() -> None:
    with python_jobs.running(python_jobs.UNTIL_TOLD) as job:
        process = python_jobs.process_of(job)
        waiting = asyncio.create_task(DeathWatch(ProcessTable())(process.id))
        await asyncio.sleep(0)
        assert not waiting.done()
        job.kill()
        await asyncio.wait_for(waiting, 60)
    await asyncio.wait_for(DeathWatch(ProcessTable())(process.id), 60)


def test_death_is_noticed_under_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test_death_is_noticed())
