"""What threads wait for, of real ones."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from types import SimpleNamespace
from weakref import WeakSet

import pytest
from profd.model.run_times import IN_GIL, IN_LOCK, UNSEEN
from profd.targets import guarded, procfs
from profd.targets import waits as module
from profd.targets.process import Process
from profd.targets.waits import FIRST_LOOKS, HOST_SHARE, LATER_HOST_SHARE, PERIOD_SECONDS, SHARE, THREADS_MAX, Waits

from tests.support import other_program, python_jobs
from tests.support.captures import process as some_process
from tests.support.python_jobs import seen
from tests.support.waiting import until

pytestmark = python_jobs.needs_ptrace

THREADS = """
import threading

def burn():
    while True:
        sum(range(1000))

def wait():
    lock.acquire()

lock = threading.Lock()
lock.acquire()
for work in (burn, wait):
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
burn()
"""


@pytest.fixture
def process() -> Iterator[Process]:
    with python_jobs.running(THREADS) as job:
        found = seen(job.pid)
        yield found


def test_two_threads_that_compute_wait_for_the_gil_in_turns_and_a_third_for_a_lock(process: Process) -> None:
    waits, main, began = Waits(process), process.id.pid, time.time_ns()
    burner, waiter = sorted(map(int, set(os.listdir(f"/proc/{main}/task")) - {str(main)}))

    def seen() -> bool:
        assert waits.look() >= PERIOD_SECONDS
        return waits.in_gil[main] >= 3 and waits.in_gil[burner] >= 3

    until(seen, "both wait for the GIL now and then")
    assert waits.knows_gil
    assert (waits.in_gil[waiter], waits.in_lock[waiter]) == (0, waits.looked[waiter])
    assert waits.in_gil[main] <= waits.looked[main]
    told = waits.states(main)
    assert (told.count(IN_GIL), len(told) - told.count(UNSEEN)) == (waits.in_gil[main], waits.looked[main])
    assert set(waits.states(waiter)) <= {IN_LOCK, UNSEEN}
    assert began <= waits.moments[0] <= waits.moments[-1] <= time.time_ns()
    assert waits.moments == sorted(set(waits.moments))


def test_of_many_looks_every_second_moment_is_kept(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.targets.waits.MOMENTS_KEPT", 4)
    waits = Waits(process)
    until(lambda: waits.look() and waits.looked[process.id.pid] >= 9, "it was looked at more often than is kept")
    assert 2 <= len(waits.moments) <= 4
    assert len(waits.states(process.id.pid)) == len(waits.moments)


def test_the_busiest_threads_are_looked_at(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.targets.waits.THREADS_MAX", 2)
    waits = Waits(process)
    until(lambda: waits.look() and waits.looked[process.id.pid] > 1, "the main thread is one of them")
    assert len(waits.looked) <= 2 < THREADS_MAX


def test_the_first_looks_have_more_of_the_host(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(module, "SHARE", math.inf)
    monkeypatch.setattr(module, "PERIOD_SECONDS", 0.0)
    monkeypatch.setattr(module, "_open", WeakSet())  # not others that earlier tests have left
    spent = iter(range(10_000))
    monkeypatch.setattr(module, "time", SimpleNamespace(thread_time=lambda: next(spent)))
    waits = Waits(process)
    assert waits.look() == pytest.approx(3 / HOST_SHARE)
    until(lambda: waits.look() == pytest.approx(3 / LATER_HOST_SHARE), "it is looked at less often")
    assert waits._looks >= FIRST_LOOKS


def test_a_process_that_has_ended() -> None:
    with python_jobs.running(THREADS) as job:
        gone = seen(job.pid)
    waits = Waits(gone)
    assert [math.isinf(waits.look()) for _ in range(3)] == [False, False, True], "it is looked at no more"
    assert (waits.looked, waits.knows_gil) == ({}, False)


def test_a_look_that_is_missed_says_nothing_to_others(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy host the child that asks may have no turn in time."""
    monkeypatch.setattr(guarded, "patience", guarded.Patience())
    monkeypatch.setattr("profd.targets.guarded._host.ask", lambda *asked: (1, [], 0.0, 0))
    assert Waits(process).look() >= PERIOD_SECONDS
    assert not procfs.unanswering(process.id.pid)
    assert procfs.read(f"/proc/{process.id.pid}/maps", 4096) is None
    assert procfs.unanswering(process.id.pid), "as other looks that are missed do"


@other_program.needs_setuid
def test_of_another_program_nothing_is_told() -> None:
    """Root's, which may be gone when the window ends."""
    with other_program.target() as target:
        waits, pid = Waits(target.process()), target.job.pid
        until(lambda: waits.look() and waits.looked[pid], "its own program is looked at")
        target.say("setuid")
        looked = waits.looked[pid]
        for _ in range(3):
            waits.look()
        assert waits.looked[pid] == looked


def test_processes_that_are_looked_at_together_share_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(module, "_open", WeakSet[Waits]())
    several = [Waits(some_process(pid)) for pid in range(100, 108)]
    several[0].begin()
    assert module._share() == SHARE
    for each in several:
        each.begin()
    assert module._share() == HOST_SHARE * 2 / 8
    for each in several[1:]:
        each.end()
    assert module._share() == SHARE
    several.clear()  # one that nobody ended counts no more when it is gone
    del each
    assert len(module._open) == 0
