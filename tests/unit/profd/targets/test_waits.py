"""What threads wait for, of real ones."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from profd.targets.process import Process
from profd.targets.table import ProcessTable
from profd.targets.waits import PERIOD_SECONDS, THREADS_MAX, Waits

from tests.support import python_jobs
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
        found = ProcessTable().get(job.pid)
        assert found is not None
        yield found


def test_two_threads_that_compute_wait_for_the_gil_in_turns_and_a_third_for_a_lock(process: Process) -> None:
    waits, main = Waits(process), process.id.pid
    burner, waiter = sorted(map(int, set(os.listdir(f"/proc/{main}/task")) - {str(main)}))

    def seen() -> bool:
        assert waits.look() >= PERIOD_SECONDS
        return waits.in_gil[main] >= 3 and waits.in_gil[burner] >= 3

    until(seen, "both wait for the GIL now and then")
    assert waits.knows_gil
    assert (waits.in_gil[waiter], waits.in_lock[waiter]) == (0, waits.looked[waiter])
    assert waits.in_gil[main] <= waits.looked[main]


def test_the_busiest_threads_are_looked_at(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.targets.waits.THREADS_MAX", 2)
    waits = Waits(process)
    until(lambda: waits.look() and waits.looked[process.id.pid] > 1, "the main thread is one of them")
    assert len(waits.looked) <= 2 < THREADS_MAX


def test_a_process_that_has_ended() -> None:
    with python_jobs.running(THREADS) as job:
        gone = ProcessTable().get(job.pid)
        assert gone is not None
    waits = Waits(gone)
    assert waits.look() == PERIOD_SECONDS
    assert (waits.looked, waits.knows_gil) == ({}, False)
