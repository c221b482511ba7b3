"""What the kernel counted of threads, read of real ones."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from profd import limits
from profd.model.run_times import THREADS_KEPT, RunTimes
from profd.targets import run_times
from profd.targets.looks import looks
from profd.targets.process import Process, ProcessId
from profd.targets.run_times import Counted, ThreadsLook, Watch, between, look

from tests.support import python_jobs
from tests.support.python_jobs import seen
from tests.support.waiting import until

NOBODY = Process(ProcessId((1 << 22) - 3, 1), ppid=1, uid=0, gid=0, user="root", command="gone")
THREADS = """
import threading, time
never = threading.Event()
for _ in range(5):
    threading.Thread(target=never.wait, daemon=True).start()
print("ready", flush=True)
while True:
    pass
"""


@pytest.fixture
def process() -> Iterator[Process]:
    with python_jobs.running(THREADS) as job:
        found = seen(job.pid)
        yield found


def settled(process: Process) -> ThreadsLook:
    """Once the sleepers sleep: the busy thread has had 50 ms, in which any that waits for the GIL gets it."""
    looked = [look(process)]

    def sleep() -> bool:
        now, busy = look(process), process.id.pid
        if now.threads[busy].ran_ns < looked[0].threads[busy].ran_ns + 50_000_000:
            return False
        before, looked[0] = looked[0], now
        rested = all(now.threads[task].ran_ns == before.threads[task].ran_ns for task in now.threads if task != busy)
        tasks = Path(f"/proc/{busy}/task").iterdir()
        return rested and all(task.name == str(busy) or "(sleeping)" in (task / "status").read_text() for task in tasks)

    until(sleep, "the threads sleep")
    return looked[0]


def test_who_runs_and_who_sleeps(process: Process) -> None:
    busy, began_ns = process.id.pid, time.monotonic_ns()
    first = settled(process)
    until(lambda: look(process).threads[busy].ran_ns > first.threads[busy].ran_ns + 50_000_000, "it runs on")
    found = between(process, first, look(process))
    ended_ns = time.monotonic_ns()
    assert [thread.id for thread in found.threads] == [busy]
    [thread] = found.threads
    assert thread.name.startswith("python")
    # Not as long as it lasted, to the millisecond: a look may be out of turn between the two clocks that it reads.
    assert 50_000_000 <= thread.ran_ns <= ended_ns - began_ns
    assert 0 < thread.lasted_ns <= ended_ns - began_ns
    assert (found.idle, found.others, found.unseen) == (5, 0, 0)
    assert found.lasted_ns > 0
    sleeping = [task for first_id, last_id in found.idle_ids for task in range(first_id, last_id + 1)]
    assert set(sleeping) == set(first.threads) - {busy}


def test_nothing_is_told_of_what_is_another_users_by_now(process: Process) -> None:
    """It has exec'd a setuid program, or its pid is used again."""
    before = dataclasses.replace(process, uid=process.uid + 1)
    assert between(before, look(before), look(before)) == RunTimes()
    assert between(process, look(process), look(process)) != RunTimes()


def test_a_thread_that_began_meanwhile_has_run_since() -> None:
    me = seen(threading.main_thread().native_id or 0)
    first, ended = look(me), threading.Event()
    worker = threading.Thread(target=lambda: (spin(), ended.wait()))
    worker.start()
    until(lambda: look(me).threads[worker.native_id or 0].ran_ns > 20_000_000, "the worker runs")
    found = between(me, first, look(me))
    ended.set()
    worker.join()
    [thread] = [thread for thread in found.threads if thread.id == worker.native_id]
    assert thread.ran_ns > 20_000_000


def spin() -> None:
    until_ns = time.thread_time_ns() + 40_000_000
    while time.thread_time_ns() < until_ns:
        pass


def test_the_busiest_are_kept_and_the_rest_is_added_up() -> None:
    first = ThreadsLook(0, {task: Counted(0, 0, 0) for task in range(100)}, 100)
    last = ThreadsLook(50, {task: Counted(50, task, 0) for task in range(100)}, 100)
    found = between(NOBODY, first, last)
    assert [thread.ran_ns for thread in found.threads] == list(range(99, 99 - THREADS_KEPT, -1))
    assert (found.others, found.others_ran_ns) == (99 - THREADS_KEPT, sum(range(1, 100 - THREADS_KEPT)))
    assert found.idle == 1


def test_more_threads_than_are_looked_at_are_counted(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_times, "RUN_TIMES_THREADS_MAX", 2)
    assert limits.RUN_TIMES_THREADS_MAX > 1000
    found = between(process, look(process), look(process))
    assert found.unseen == 4


async def test_of_a_process_that_has_ended_nothing_is_known() -> None:
    watch = Watch(NOBODY)
    watch.begin()
    assert await watch.times() == RunTimes()
    assert await Watch(NOBODY).times() == RunTimes()


async def test_a_watch_waits_for_others_and_keeps_nobody_else_waiting() -> None:
    me = seen(threading.main_thread().native_id or 0)
    held = threading.Event()
    looks.submit(me.uid, held.wait)  # a look at a process of many threads
    try:
        watches = [Watch(me) for _ in range(100)]
        for watch in watches:
            watch.begin()
        times = asyncio.ensure_future(watches[0].times())
        for _ in range(200):
            await asyncio.to_thread(look, me)  # as a list of traces is made
        assert not times.done()
    finally:
        held.set()
    assert (await times).lasted_ns > 0
