"""The memory of a real process, looked at from outside."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

import pytest
from profd.model.resident import LOOKS_KEPT, Resident
from profd.targets import procfs
from profd.targets.process import Process, ProcessId
from profd.targets.resident import PERIOD_SECONDS, ResidentWatch

from tests.support import python_jobs
from tests.support.waiting import eventually, until

NOBODY = Process(ProcessId((1 << 22) - 3, 1), ppid=1, uid=0, gid=0, user="root", command="gone")
MIB = 1 << 20
SHARED, OWN = 48 * MIB, 32 * MIB
PROGRAM = f"""
import mmap, threading
shared = mmap.mmap(-1, {SHARED})
shared.write(b"1" * {SHARED})
own = bytearray(b"1" * {OWN})
print("ready", flush=True)
threading.Event().wait()
"""


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    with python_jobs.running(PROGRAM) as job:
        yield python_jobs.process_of(job)


@pytest.fixture
def _answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is there misses no look, as it would on a busy host."""
    look = procfs.resident_of
    monkeypatch.setattr(procfs, "resident_of", lambda pid: until(lambda: look(pid), "it answers"))


@pytest.mark.usefixtures("_answers")
def test_what_is_shared_is_not_its_own(process: Process) -> None:
    found = procfs.resident_of(process.id.pid)
    assert found is not None
    total, own = found
    assert total - own >= SHARED - 4 * MIB  # the kernel's counts lag
    assert own >= OWN - 4 * MIB


def test_of_nobody_nothing_is_known() -> None:
    assert procfs.resident_of(NOBODY.id.pid) is None


@pytest.mark.usefixtures("_answers")
async def test_looks_begin_and_end_with_the_window(process: Process) -> None:
    watch = ResidentWatch(process)
    assert await watch.resident() == Resident()
    watch.begin()
    await eventually(lambda: len(watch._found) >= 2)
    found = await watch.resident()
    assert len(found.looks) >= 3
    assert found.looks[0].at_ns == 0
    assert found.age_ns is not None
    assert 0 < found.age_ns < time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert found.lasted_ns > 0
    assert await watch.resident() == found


async def test_of_a_process_that_is_gone_or_anothers_nothing_is_known(process: Process) -> None:
    for other in (NOBODY, dataclasses.replace(process, uid=process.uid + 1)):
        watch = ResidentWatch(other)
        watch.begin()
        assert await watch.resident() == Resident()


@pytest.mark.usefixtures("_answers")
def test_looks_of_a_long_window_are_thinned_out(process: Process) -> None:
    watch = ResidentWatch(process)
    periods = [watch.look() for _ in range(LOOKS_KEPT * 2)]
    assert periods[0] == PERIOD_SECONDS
    assert periods[LOOKS_KEPT:] == [2 * PERIOD_SECONDS] * (LOOKS_KEPT // 2) + [4 * PERIOD_SECONDS] * (LOOKS_KEPT // 2)
    assert len(watch._found) == LOOKS_KEPT
    assert watch._found[0].at_ns == 0
    assert sorted(watch._found, key=lambda look: look.at_ns) == watch._found
