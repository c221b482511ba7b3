"""Jobs that last give way to those that somebody waits for. Processes, threads and groups of sessions are real ones."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from profclient.priority import NICE_MAX, led_session, nice_of, session_nice, set_nice
from profd.fairness.shares import Holder
from profd.limits import LASTING_NICE
from profd.workers import weights
from profd.workers.pool import WorkerPool
from profd.workers.turns import JobKind, Turn

from tests.support.in_proc import of_threads
from tests.support.jobs import JOBS
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
READER, SENDER = Holder(5, False), Holder(6, False)
IMPORT, QUESTION = Turn(SENDER, JobKind.LONG), Turn(READER, JobKind.GLANCE)
needs_groups = pytest.mark.skipif(
    not Path("/proc/self/autogroup").exists() or os.geteuid() != 0,
    reason="groups of sessions (autogroup), as root: others may change ten a second, of all users",
)


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    pool = WorkerPool(2, known=JOBS)
    await pool.open()
    yield pool
    await pool.close()


def threads(pid: int) -> set[int]:
    """The nice values of its threads."""
    return {int(said.rpartition(")")[2].split()[16]) for said in of_threads(pid, "stat").values()}


def session(pid: int) -> int:
    """The nice value of the session that it leads."""
    file = led_session(pid)
    assert file is not None
    try:
        return nice_of(file)
    finally:
        os.close(file)


async def test_the_thread_of_a_job_that_lasts_is_nicer_and_no_other(pool: WorkerPool) -> None:
    usual = min(os.nice(0) + 5, NICE_MAX)
    read, write = os.pipe()
    job = asyncio.create_task(pool.run("hang", {}, fds=[write], turn=IMPORT))
    assert await asyncio.to_thread(os.read, read, 1) == b"x"
    assert sorted(max(threads(pid)) for pid in pool.pids) == [usual, min(usual + LASTING_NICE, NICE_MAX)]
    assert {min(threads(pid)) for pid in pool.pids} == {usual}
    job.cancel()
    await asyncio.wait({job})
    done = await pool.run("echo", {}, turn=IMPORT)
    asked = await pool.run("echo", {}, turn=Turn(SENDER, JobKind.GLANCE))
    assert asked["pid"] == done["pid"]  # its user has the same again
    await eventually(lambda: threads(asked["pid"]) == {usual})  # that of the import is listed while it ends
    os.close(read), os.close(write)


async def test_arrows_thread_is_no_nicer_for_whose_job_had_it_first(pool: WorkerPool) -> None:
    assert await pool.run("columns", {}, turn=IMPORT) == {"rows": 1}
    usual = [{min(os.nice(0) + 5, NICE_MAX)}] * 2
    await eventually(lambda: [threads(pid) for pid in pool.pids] == usual)  # as above


@needs_groups
async def test_a_session_is_low_while_somebody_waits_for_another_and_no_longer(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for as long as its job lasts: beside the other work of a full host that job would hardly go on."""
    monkeypatch.setattr(weights, "LASTING_LOW_SECONDS", 0.01)
    usual = session_nice(5, os.cpu_count() or 1)
    low = min(usual + LASTING_NICE, NICE_MAX)
    read, write = os.pipe()

    async def hanging(turn: Turn) -> asyncio.Task[dict[str, object]]:
        job = asyncio.create_task(pool.run("hang", {}, fds=[write], turn=turn))
        assert await asyncio.to_thread(os.read, read, 1) == b"x"
        return job

    first = await hanging(IMPORT)
    assert [session(pid) for pid in pool.pids] == [usual, usual]
    assert not pool.awaited()
    question = await hanging(QUESTION)
    assert sorted(session(pid) for pid in pool.pids) == [usual, low]
    assert pool.awaited()
    question.cancel()
    await asyncio.wait({question})
    await eventually(lambda: {session(pid) for pid in pool.pids} == {usual})
    assert not pool.awaited()
    first.cancel()
    await asyncio.wait({first})
    os.close(read), os.close(write)


@needs_groups
async def test_a_session_is_what_it_was_once_its_job_has_ended(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the kernel takes the change later only: it takes ten a second of those without rights."""
    usual = session_nice(5, os.cpu_count() or 1)
    question = asyncio.create_task(pool.run("hang", {}, turn=QUESTION))
    await eventually(pool.awaited)
    seen: list[int] = []
    refused = iter([True, True])

    def busy_at_times(file: int, nice: int) -> None:
        if next(refused, False):
            raise BlockingIOError
        set_nice(file, nice)
        seen.append(nice)

    monkeypatch.setattr(weights, "set_nice", busy_at_times)
    before, after = os.pipe(), os.pipe()
    job = asyncio.create_task(pool.run("glance", {}, fds=[before[1], after[0]], turn=IMPORT))
    assert await asyncio.to_thread(os.read, before[0], 1) == b"x"
    await eventually(lambda: seen)
    refused = iter([True, True])
    os.close(before[0]), os.close(after[1])  # it ends in an error: nobody reads
    await asyncio.gather(job, return_exceptions=True)
    await eventually(lambda: len(seen) == 2)
    assert seen == [min(usual + LASTING_NICE, NICE_MAX), usual]
    assert {session(pid) for pid in pool.pids} == {usual}
    question.cancel()
    await asyncio.wait({question})
    os.close(before[1]), os.close(after[0])
