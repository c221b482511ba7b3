"""What a process takes of the host, read of a real one."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest
from profd.model.load import Load, Stretch
from profd.targets import load
from profd.targets.load import LoadWatch, ThreadCounts, between, count
from profd.targets.process import Process, ProcessId

from tests.support import python_jobs
from tests.support.python_jobs import seen
from tests.support.waiting import eventually, until

MS = 1_000_000
NOBODY = Process(ProcessId((1 << 22) - 3, 1), ppid=1, uid=0, gid=0, user="root", command="gone")
# One thread runs, and the other waits over and over.
PROGRAM = """
import threading, time
def waits():
    while True: time.sleep(0.001)
threading.Thread(target=waits, daemon=True).start()
print("ready", flush=True)
while True: pass
"""


@pytest.fixture
def process() -> Iterator[Process]:
    with python_jobs.running(PROGRAM) as job:
        found = seen(job.pid)
        yield found


def counted(process: Process) -> ThreadCounts:
    """Of one that is there. On a busy host it misses looks, and then nothing is known of a stretch."""
    found = until(lambda: count(process), "it answers")
    assert found is not None
    return found


@pytest.fixture
def _answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "count", counted)


def stretch_of(process: Process) -> Stretch:
    """One in which it has run for 50 ms and waited twenty times."""
    first = counted(process)
    found: list[Stretch] = []

    def long_enough() -> bool:
        stretch = between(first, count(process))
        found[:] = [] if stretch is None else [stretch]
        return bool(found) and found[0].cpu_ns > 50 * MS and found[0].waits > 20

    until(long_enough, "it runs and waits")
    return found[0]


async def passed(look: Callable[[], Future[ThreadCounts | None] | None], process: Process) -> None:
    """Such a stretch, from this look on."""
    await eventually(lambda: (found := look()) is not None and found.done())
    await asyncio.to_thread(stretch_of, process)


@pytest.mark.usefixtures("_answers")
async def test_before_during_and_after(process: Process) -> None:
    watch = LoadWatch(process)
    await passed(lambda: watch._ordered, process)
    watch.begin()
    await passed(lambda: watch._began, process)
    watch.end()
    known = await watch.load()
    await passed(lambda: watch._ended, process)
    whole = await watch.complete(known)
    assert (whole.before, whole.during) == (known.before, known.during)
    assert known.after is None
    for each in (whole.before, whole.during, whole.after):
        assert each is not None
        assert 50 * MS < each.cpu_ns <= 2 * each.lasted_ns + 20 * MS
        assert each.waits > 20


@pytest.mark.usefixtures("_answers")
async def test_before_a_window_that_opens_at_once_nothing_is_looked_at(process: Process) -> None:
    watch = LoadWatch(process)
    watch.begin()
    assert watch._ordering.cancelled()
    await passed(lambda: watch._began, process)
    known = await watch.load()
    assert known.before is None
    assert known.during is not None


@pytest.mark.usefixtures("_answers")
async def test_what_ends_before_its_window_is_looked_at_all_the_same(process: Process) -> None:
    """As each report of a state before it: the window may still open."""
    watch = LoadWatch(process)
    watch.end()
    await passed(lambda: watch._ordered, process)
    watch.begin()
    await passed(lambda: watch._began, process)
    assert (await watch.load()).before is not None


async def test_of_a_window_that_was_never_open_nothing_is_known(process: Process) -> None:
    watch = LoadWatch(process)
    watch.end()
    assert await watch.load() == Load()
    assert watch.ended_at is None


def test_what_is_no_measure_is_not_known() -> None:
    first = ThreadCounts(0, {1: (5, 5, 5, 5)})
    assert between(first, ThreadCounts(load.LEAST_NS - 1, {1: (6, 6, 6, 6)})) is None
    assert between(None, first) is None
    assert between(first, ThreadCounts(load.LEAST_NS, {1: (6, 6, 4, 6)})) is None  # the id is another thread's by now
    later = ThreadCounts(load.LEAST_NS, {1: (7, 6, 5, 8), 2: (10, 20, 30, 40)})  # the second is new
    assert between(first, later) == Stretch(load.LEAST_NS, 12, 21, 30, 43)
    assert between(first, ThreadCounts(load.LEAST_NS, {})) == Stretch(load.LEAST_NS, 0, 0, 0, 0)


def test_others_are_not_counted(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    assert count(process) is not None
    assert count(NOBODY) is None
    assert count(dataclasses.replace(process, uid=process.uid + 1)) is None
    monkeypatch.setattr(load, "LOAD_THREADS_MAX", 1)
    assert count(process) is None
