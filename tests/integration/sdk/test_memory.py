"""What a recording is charged for in the job's memory cgroup, and jobs whose cgroup is nearly full."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from profproto.v1 import capture_pb2 as pb

from tests.support.attached import Attached, Captures, sources
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.memory_cgroup import MemoryCgroup, Unavailable, memory_cgroup
from tests.support.waiting import until

pytestmark = pytest.mark.slow

MiB = 1 << 20
LIMIT = 50 * MiB
ROUNDS = 50  # of captures in a row: they are short

# 24 MB, most of it its own. Counts its turns; records in them when it is told to.
JOB = """
import mmap, os, sys, threading, time
ballast = b"x" * (10 << 20)
import profclient
profclient.attach()
shared = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 8)
records, ended = sys.argv[2] == "records", threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
def work():
    with profclient.record_function("work"):
        pass
print("ready", flush=True)
turn = 0
while not ended.is_set():
    for _ in range(200 if records else 0):
        work()
    turn += 1
    shared[:8] = turn.to_bytes(8, "little")
    time.sleep(0.002)
"""


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    with running_daemon() as found:  # arenas of 64 MiB, as without any setting
        yield found


@pytest.fixture
def group() -> Iterator[MemoryCgroup]:
    try:
        with memory_cgroup() as found:
            yield found
    except Unavailable as why:
        pytest.skip(str(why))


@contextmanager
def job_in(group: MemoryCgroup, daemon: RunningDaemon, folder: Path, does: str) -> Iterator[Attached]:
    count = folder / "count"
    count.write_bytes(bytes(8))
    process = subprocess.Popen(
        [sys.executable, "-c", JOB, str(count), does],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=daemon.environ,
        preexec_fn=group.enter,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        job = Attached(process, count)
        until(lambda: "sdk" in sources(daemon, job.pid), "the job is attached")
        job.counts_on()
        yield job
    finally:
        process.kill()
        process.communicate()


def recorded(captures: Captures, job: Attached, **options: object) -> pb.TargetStatus:
    capture = captures.recording(job.pid, **options)
    job.counts_on()
    [target] = captures.stop(capture).targets
    return target


def test_recording_nothing_is_charged_next_to_nothing(
    daemon: RunningDaemon, group: MemoryCgroup, tmp_path: Path
) -> None:
    captures = Captures(daemon)
    with job_in(group, daemon, tmp_path, "waits") as job:
        recorded(captures, job)  # what is loaded once
        before = group.charged
        capture = captures.recording(job.pid)
        job.counts_on()
        assert group.charged - before <= 2 * MiB
        captures.stop(capture)


@pytest.mark.parametrize("stacks", [False, True])
def test_a_job_in_a_tight_cgroup_outlives_its_captures(
    daemon: RunningDaemon, group: MemoryCgroup, tmp_path: Path, *, stacks: bool
) -> None:
    captures = Captures(daemon)
    with job_in(group, daemon, tmp_path, "records") as job:
        group.limit(LIMIT)
        for _ in range(ROUNDS):
            target = recorded(captures, job, stacks=stacks)
            assert target.state == pb.STATE_STORED, target.message
        assert group.kills == 0
        assert job.process.poll() is None


def test_a_job_without_any_room_is_not_recorded(daemon: RunningDaemon, group: MemoryCgroup, tmp_path: Path) -> None:
    captures = Captures(daemon)
    with job_in(group, daemon, tmp_path, "records") as job:
        group.limit(group.charged + 6 * MiB)
        [target] = captures.record(job.pid, source="sdk").targets
        assert target.state == pb.STATE_REFUSED
        assert f"its memory cgroup {group.name} has" in target.message
        assert "raise the limit" in target.message
        assert group.kills == 0
        job.counts_on()
