"""What goes wrong around a recording. In all of it the program's results are what they are without us, what has
been acked is in the trace once, and the rest is counted or said to be missing.

| fault | tests (test_…), real processes each |
|---|---|
| the process is killed mid-chunk | here: a_killed_process; recorder/faults; ingest/streamer |
| it is stopped for 30 s | here: a_stopped_process, a_process_that_goes_on, stopped_for_half_a_minute |
| the daemon is killed, and back | daemon_faults: a_daemon_that_is_killed, and_its_process; sdk_agent/daemon_faults |
| the daemon is killed between arming and the disk | killed_while_arming |
| the daemon comes later | daemon_faults: a_daemon_that_comes_later; sdk_agent/daemon_faults |
| sockets are removed | daemon_faults: who_is_attached_stays_so; daemon/removed_sockets |
| the disk is full | daemon_faults: a_full_disk; ingest/streamer: full_disk |
| busy GIL, long C calls | here: a_process_that_holds_the_gil; sdk_agent/arming: a_program_that_holds_the_gil |
| the streamer is killed, or stopped | daemon_faults: a_killed_streamer, that_cannot_keep_up; ingest/streamer |
| a fork in a range | forks: children_write_nothing; sdk_agent/forks; recorder/faults |
| 10 000 threads | here: thousands_of_threads |
| the daemon is slow: credits run out | daemon_faults: a_daemon_that_stands_still; ingest/streamer: slow_writer |
| corrupt, replayed, reordered, oversized chunks | hostile_client, hostile_agent; ingest/service, ingest/hostile |
| the wall clock is stepped | clock_steps |
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from profproto.v1 import capture_pb2 as pb

from tests.support.attached import (
    Captures,
    assert_covers,
    attached,
    sources,
    sql,
    values,
    whole,
)
from tests.support.daemon import RunningDaemon
from tests.support.long import long
from tests.support.waiting import until

pytestmark = pytest.mark.slow


STOPPED_SECONDS = 30.0


def test_a_killed_process_leaves_everything_it_had_recorded(daemon: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(daemon)
    for _ in range(3):
        with attached(daemon, tmp_path) as job:
            capture = captures.recording(job.pid)
            before = job.count
            job.counts_on()
            job.process.kill()
            job.process.wait()
            after = job.count
            [target] = captures.ended(capture).targets
            assert (target.state, target.reason) == (pb.STATE_PARTIAL, pb.REASON_TARGET_ENDED), target.message
            assert_covers(values(daemon, target.trace), before, after)
            assert not target.lost


def test_a_program_that_ends_in_its_window(daemon: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(daemon)
    with attached(daemon, tmp_path) as job:
        capture = captures.recording(job.pid)
        job.counts_on()
        job.check_results()
        [target] = captures.ended(capture).targets
        assert (target.state, target.reason) == (pb.STATE_PARTIAL, pb.REASON_TARGET_ENDED), target.message
        found = values(daemon, target.trace)
        assert whole(found)
        assert found[-1] == job.count - 1


def test_a_stopped_process_holds_nobody_up(daemon: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(daemon)
    with attached(daemon, tmp_path) as stopped, attached(daemon, tmp_path) as other:
        capture = captures.recording(stopped.pid)
        before = stopped.count
        stopped.counts_on()
        os.kill(stopped.pid, signal.SIGSTOP)
        until(lambda: _state(stopped.pid) == "T", "the process is stopped")
        after = stopped.count
        [target] = captures.record(other.pid).targets
        assert target.state == pb.STATE_STORED, target.message

        [target] = captures.stop(capture).targets
        assert target.state == pb.STATE_STORED, target.message
        assert any("did not answer" in warning for warning in target.warnings)
        assert_covers(values(daemon, target.trace), before, after)
        assert "sdk" not in sources(daemon, stopped.pid)

        os.kill(stopped.pid, signal.SIGCONT)
        stopped.counts_on()
        until(lambda: "sdk" in sources(daemon, stopped.pid), "it is ready again")
        [target] = captures.record(stopped.pid).targets
        assert target.state == pb.STATE_STORED, target.message
        stopped.check_results()
        other.check_results()


def test_a_process_that_goes_on_within_its_window_is_whole(daemon: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(daemon)
    with attached(daemon, tmp_path) as job:
        capture = captures.recording(job.pid)
        before = job.count
        os.kill(job.pid, signal.SIGSTOP)
        until(lambda: _state(job.pid) == "T", "the process is stopped")
        os.kill(job.pid, signal.SIGCONT)
        job.counts_on()
        after = job.count
        [target] = captures.stop(capture).targets
        assert target.state == pb.STATE_STORED, target.message
        assert_covers(values(daemon, target.trace), before, after)
        job.check_results()


@long
def test_a_process_that_was_stopped_for_half_a_minute(daemon: RunningDaemon, tmp_path: Path) -> None:
    """Longer than anything here waits for an answer, and shorter than its window."""
    captures = Captures(daemon)
    with attached(daemon, tmp_path) as job:
        capture = captures.recording(job.pid)
        before = job.count
        os.kill(job.pid, signal.SIGSTOP)
        since = time.monotonic()
        captures.until(capture, lambda state: "silent" in state.targets[0].doing)
        until(lambda: time.monotonic() - since >= STOPPED_SECONDS, "half a minute has passed")
        os.kill(job.pid, signal.SIGCONT)
        job.counts_on()
        after = job.count
        [target] = captures.stop(capture).targets
        assert target.state == pb.STATE_STORED, target.message
        assert_covers(values(daemon, target.trace), before, after)
        assert not target.lost
        job.check_results()


THREADS = """
import sys, threading
import profclient
profclient.attach()
print("ready", flush=True)
sys.stdin.readline()
def one(n):
    for i in range(3):
        with profclient.record_function("in a thread"):
            profclient.counter("n", 3 * n + i)
for block in range(0, 10_000, 50):
    threads = [threading.Thread(target=one, args=(n,)) for n in range(block, block + 50)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
print("threads done", flush=True)
sys.stdin.read()
print(0, 0, flush=True)
"""


def test_thousands_of_threads_that_come_and_go(daemon: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(daemon)
    with attached(daemon, tmp_path, THREADS) as job:
        capture = captures.recording(job.pid)
        assert job.process.stdin is not None
        assert job.process.stdout is not None
        job.process.stdin.write("go\n")
        job.process.stdin.flush()
        assert job.process.stdout.readline() == "threads done\n"
        [target] = captures.stop(capture).targets
        assert target.state == pb.STATE_STORED, target.message
        assert sorted(values(daemon, target.trace)) == list(range(30_000))
        [[threads, ranges]] = sql(
            daemon, target.trace, "select count(distinct thread), count(*) from events where name = 'in a thread'"
        )
        assert ranges == 30_000
        assert threads <= 10_000
        job.check_results()


BUSY_GIL = """
import random, sys, threading
import profclient
profclient.attach()
numbers = [random.random() for _ in range(300_000)]
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
print("ready", flush=True)
while not done.is_set():
    with profclient.record_function("holds the GIL"):
        sorted(numbers)
print(0, 0, flush=True)
"""


def test_a_process_that_holds_the_gil_is_armed_and_stopped(daemon: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(daemon)
    with attached(daemon, tmp_path, BUSY_GIL) as job:
        [target] = captures.record(job.pid, duration_ns=1_000_000_000).targets
        assert target.state == pb.STATE_STORED, target.message
        assert target.events > 0
        job.check_results()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
