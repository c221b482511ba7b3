"""What goes wrong around a recording. In all of it the program's results are what they are without us, what has
been acked is in the trace once, and the rest is counted or said to be missing.

| fault | tests, real processes each |
|---|---|
| the process is killed mid-chunk | here: a_killed_process; recorder/test_faults; ingest/test_streamer |
| it is stopped for 30 s | here: a_stopped_process, a_process_that_goes_on, stopped_for_half_a_minute |
| the daemon is killed, and back | here: a_daemon_that_is_killed, and_its_process; sdk_agent/test_daemon_faults |
| the daemon is killed between arming and the disk | test_killed_while_arming |
| the daemon comes later | here: a_daemon_that_comes_later; sdk_agent/test_daemon_faults |
| sockets are removed | here: who_is_attached_stays_so; daemon/test_removed_sockets |
| the disk is full | here: a_full_disk; ingest/test_streamer: full_disk |
| busy GIL, long C calls | here: a_process_that_holds_the_gil; sdk_agent/test_arming: a_program_that_holds_the_gil |
| the streamer is killed, or stopped | here: a_killed_streamer, a_streamer_that_cannot_keep_up; ingest/test_streamer |
| a fork in a range | here: children_write_nothing; sdk_agent/test_forks; recorder/test_faults |
| 10 000 threads | here: thousands_of_threads |
| the daemon is slow: credits run out | here: a_daemon_that_stands_still; ingest/test_streamer: slow_writer |
| corrupt, replayed, reordered, oversized chunks | test_hostile_client; ingest/test_service, ingest/test_hostile |
| the wall clock is stepped | test_clock_steps |
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from profproto.v1 import capture_pb2 as pb

from tests.support.attached import (
    COUNT,
    WAIT_SECONDS,
    Captures,
    assert_covers,
    attached,
    lost,
    sources,
    spawn,
    sql,
    streamers,
    values,
    whole,
)
from tests.support.daemon import RunningDaemon, running_daemon, start_daemon
from tests.support.waiting import until

pytestmark = pytest.mark.slow

STOPPED_SECONDS = 30.0
FAST = COUNT.replace("    if i % 20 == 0:\n        time.sleep(0.002)\n", "")


@pytest.fixture
def own_daemon() -> Iterator[RunningDaemon]:
    """For tests that harm it."""
    with running_daemon(environ={"PROFD_SDK_ARENA_BYTES": "24MiB"}) as daemon:
        yield daemon


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


def test_a_killed_streamer_is_replaced_and_nothing_is_missing(daemon: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(daemon)
    with attached(daemon, tmp_path) as job:
        capture = captures.recording(job.pid)
        before = job.count
        for _ in range(2):
            job.counts_on()
            until(lambda: bool(streamers(daemon)), "there is a streamer")
            [pid] = streamers(daemon)
            os.kill(pid, signal.SIGKILL)
            until(lambda pid=pid: streamers(daemon) not in ([], [pid]), "there is another one")
        job.counts_on()
        after = job.count
        [target] = captures.stop(capture).targets
        assert target.state == pb.STATE_STORED, target.message
        assert any("streamer" in warning for warning in target.warnings)
        assert_covers(values(daemon, target.trace), before, after)
        job.check_results()


def test_a_streamer_that_cannot_keep_up_costs_the_newest_events_and_they_are_counted(
    own_daemon: RunningDaemon, tmp_path: Path
) -> None:
    captures = Captures(own_daemon)
    with attached(own_daemon, tmp_path, FAST) as job:
        capture = captures.recording(job.pid)
        until(lambda: bool(streamers(own_daemon)), "there is a streamer")
        [pid] = streamers(own_daemon)
        os.kill(pid, signal.SIGSTOP)
        # 16 MiB of chunks hold half a million slots.
        seen = job.count
        until(lambda: job.count > seen + 400_000, "the arena is full")
        [file] = own_daemon.state_dir.glob("journal/*/*/chunks.pfc")
        os.kill(pid, signal.SIGCONT)
        # Two messages: the chunks of the first are free again before the arena's content is all sent.
        size = file.stat().st_size
        until(lambda: file.stat().st_size > size + (2 << 20), "the arena is emptied")
        seen = job.count
        until(lambda: job.count > seen + 100_000, "there is room again")
        [target] = captures.stop(capture).targets
        assert (target.state, target.reason) == (pb.STATE_PARTIAL, pb.REASON_LOSSES), target.message
        assert set(lost(target)) == {"arena_full"}
        [[first, last, count, distinct, ranges]] = sql(
            own_daemon,
            target.trace,
            "select min(value), max(value), count(value), count(distinct value), "
            "count(*) filter (name = 'work') from events where name in ('n', 'work')",
        )
        assert count == distinct
        missing = (last - first + 1 - count) + (last - first + 1 - ranges)
        assert lost(target)["arena_full"] >= missing - 2
        assert missing > 0
        job.check_results()


def test_a_daemon_that_stands_still_costs_the_newest_events_and_the_program_nothing(
    own_daemon: RunningDaemon, tmp_path: Path
) -> None:
    """Its credits run out, then the arena is full."""
    captures = Captures(own_daemon)
    with attached(own_daemon, tmp_path, FAST) as job:
        capture = captures.recording(job.pid)
        os.kill(own_daemon.process.pid, signal.SIGSTOP)
        try:
            seen = job.count
            until(lambda: job.count > seen + 2_000_000, "arena and credit are used up")
            [file] = own_daemon.state_dir.glob("journal/*/*/chunks.pfc")
            size = file.stat().st_size
        finally:
            os.kill(own_daemon.process.pid, signal.SIGCONT)
        # More than the arena holds, which is all that was under way: it is recorded again.
        until(lambda: file.stat().st_size > size + (5 << 20), "the arena is emptied")
        seen = job.count
        until(lambda: job.count > seen + 100_000, "it is recorded again")
        [target] = captures.stop(capture).targets
        assert (target.state, target.reason) == (pb.STATE_PARTIAL, pb.REASON_LOSSES), target.message
        assert set(lost(target)) == {"arena_full"}
        [[first, last, count, distinct]] = sql(
            own_daemon,
            target.trace,
            "select min(value), max(value), count(value), count(distinct value) from events where name = 'n'",
        )
        assert count == distinct
        assert 0 < last - first + 1 - count <= lost(target)["arena_full"]
        job.check_results()


def test_a_daemon_that_is_killed_in_a_capture(own_daemon: RunningDaemon, tmp_path: Path) -> None:
    with attached(own_daemon, tmp_path) as job:
        capture = Captures(own_daemon).recording(job.pid)
        before = job.count
        job.counts_on()
        own_daemon.kill()
        during = job.count
        job.counts_on()
        again = start_daemon(own_daemon.directory, environ={"PROFD_SDK_ARENA_BYTES": "24MiB"})
        own_daemon.process = again.process
        captures = Captures(again)
        until(lambda: "sdk" in sources(again, job.pid), "it is ready again")
        [target] = captures.ended(capture).targets
        if target.state == pb.STATE_FAILED:
            # The daemon was not back within 15 s: what had arrived before is there.
            assert target.reason == pb.REASON_DAEMON_RESTARTED, target.message
            captures.call("RetryCapture", pb.CaptureRef(id=capture))
            [target] = captures.ended(capture).targets
        else:
            assert target.reason == pb.REASON_DAEMON_RESTARTED, target.message
            assert values(again, target.trace)[-1] >= during  # what was recorded without a daemon is there, too
        assert target.state == pb.STATE_PARTIAL, target.message
        found = values(again, target.trace)
        assert whole(found)
        assert found[0] <= before
        [target] = captures.record(job.pid).targets
        assert target.state == pb.STATE_STORED, target.message
        job.check_results()


def test_a_daemon_that_is_stopped_in_a_capture(own_daemon: RunningDaemon, tmp_path: Path) -> None:
    with attached(own_daemon, tmp_path) as job:
        capture = Captures(own_daemon).recording(job.pid)
        before = job.count
        job.counts_on()
        during = job.count
        assert own_daemon.stop() == 0
        own_daemon.process = start_daemon(own_daemon.directory).process
        [target] = Captures(own_daemon).get(capture).targets
        assert target.state == pb.STATE_STORED, target.message
        assert any("profd was stopped" in warning for warning in target.warnings)
        assert_covers(values(own_daemon, target.trace), before, during)
        until(lambda: "sdk" in sources(own_daemon, job.pid), "it is ready again")
        job.check_results()


def test_a_daemon_and_its_process_that_are_both_killed(own_daemon: RunningDaemon, tmp_path: Path) -> None:
    with attached(own_daemon, tmp_path) as job:
        captures = Captures(own_daemon)
        capture = captures.recording(job.pid)
        until(lambda: job.count > 3000, "chunks are full")
        until(lambda: bool(list(own_daemon.state_dir.glob("journal/*/*/chunks.pfc"))), "chunks have arrived")
        [file] = own_daemon.state_dir.glob("journal/*/*/chunks.pfc")
        until(lambda: file.stat().st_size > 0, "chunks have arrived")
        own_daemon.kill()
        job.process.kill()
        job.process.wait()
        again = start_daemon(own_daemon.directory)
        own_daemon.process = again.process
        captures = Captures(again)
        [target] = captures.get(capture).targets
        assert (target.state, target.reason) == (pb.STATE_FAILED, pb.REASON_DAEMON_RESTARTED)
        assert "profctl retry" in target.message
        captures.call("RetryCapture", pb.CaptureRef(id=capture))
        [target] = captures.ended(capture).targets
        assert (target.state, target.reason) == (pb.STATE_PARTIAL, pb.REASON_TRUNCATED), target.message
        assert whole(values(again, target.trace))


def test_a_daemon_that_comes_later(tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="pd-", dir="/tmp"))
    absent = RunningDaemon(folder, subprocess.Popen(["true"]))
    absent.process.wait()
    job = spawn(absent, tmp_path)
    daemon = None
    try:
        job.counts_on()
        daemon = start_daemon(folder)
        found = daemon
        until(lambda: "sdk" in sources(found, job.pid), "it has found the daemon")
        [target] = Captures(daemon).record(job.pid).targets
        assert target.state == pb.STATE_STORED, target.message
        assert whole(values(daemon, target.trace))
        job.check_results()
    finally:
        job.process.kill()
        job.process.communicate()
        if daemon is not None:
            daemon.stop()
        shutil.rmtree(folder, ignore_errors=True)


def test_who_is_attached_stays_so_when_the_socket_is_removed(own_daemon: RunningDaemon, tmp_path: Path) -> None:
    with attached(own_daemon, tmp_path) as job:
        own_daemon.socket.with_name("agent.sock").unlink()
        [target] = Captures(own_daemon).record(job.pid).targets
        assert target.state == pb.STATE_STORED, target.message
        assert whole(values(own_daemon, target.trace))
        job.check_results()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs takes root")
def test_a_full_disk_ends_the_recording_and_keeps_what_there_is(tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="pd-", dir="/tmp"))
    state = folder / "state"
    state.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=320m", "tmpfs", state], capture_output=True)
    if mounted.returncode:
        shutil.rmtree(folder)
        pytest.skip(f"tmpfs cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        daemon = start_daemon(folder, environ={"PROFD_SDK_ARENA_BYTES": "24MiB"})
        with contextlib.ExitStack() as ending:
            ending.callback(daemon.stop)
            job = ending.enter_context(attached(daemon, tmp_path))
            captures = Captures(daemon)
            capture = captures.recording(job.pid, force=True)
            # Nothing is written below 256 MiB, so that the rest of the daemon goes on.
            with (state / "ballast").open("wb") as ballast:
                os.posix_fallocate(ballast.fileno(), 0, 80 << 20)
            [target] = captures.ended(capture).targets
            assert target.reason == pb.REASON_DISK_FULL, (target.state, target.message)
            job.counts_on()
            (state / "ballast").unlink()
            until(lambda: "sdk" in sources(daemon, job.pid), "it is ready again")
            [target] = captures.record(job.pid).targets
            assert target.state == pb.STATE_STORED, target.message
            job.check_results()
    finally:
        subprocess.run(["umount", state], check=False)
        shutil.rmtree(folder, ignore_errors=True)


FORKS = (
    COUNT.replace(
        "    i += 1\n",
        "    i += 1\n    if i % 500 == 250 and i < 3000:\n        pids.append(fork(i))\n",
    )
    .replace(
        "done = threading.Event()",
        """done = threading.Event()
pids = []
def fork(i):
    with profclient.record_function("around the fork"):
        pid = os.fork()
        if pid == 0:
            for j in range(50):
                with profclient.record_function("of a child"):
                    profclient.counter("n", -1 - j)
    if pid == 0:
        os._exit(7)
    return pid
""",
    )
    .replace(
        "print(i, checksum, flush=True)",
        "codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]\n"
        "assert set(codes) <= {7}\nprint(i, checksum, flush=True)",
    )
)


def test_children_write_nothing_into_their_parents_trace(daemon: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(daemon)
    with attached(daemon, tmp_path, FORKS) as job:
        capture = captures.recording(job.pid)
        until(lambda: job.count > 3000, "it has forked")
        [target] = captures.stop(capture).targets
        assert target.state == pb.STATE_STORED, target.message
        found = values(daemon, target.trace)
        assert whole(found)
        assert min(found) >= 0
        counted = dict(sql(daemon, target.trace, "select name, count(*) from events group by name"))
        assert "of a child" not in counted
        job.check_results()


LIVE_CHILD = """
import os, sys
import profclient
profclient.attach()
parent = os.getpid()
with profclient.record_function("opened by the parent"):
    pid = os.fork()
if pid:
    print("ready", flush=True)
    sys.stdin.read()
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    print(0, 0, flush=True)
else:
    while os.getppid() == parent:  # nobody else would end it
        with profclient.record_function("child"):
            pass
"""


def test_a_child_is_a_process_of_its_own(daemon: RunningDaemon, tmp_path: Path) -> None:
    with attached(daemon, tmp_path, LIVE_CHILD) as job:
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children")
        [child] = [int(pid) for pid in children.read_text().split()]
        until(lambda: "sdk" in sources(daemon, child), "the child has attached")
        capture = Captures(daemon).record(job.pid, child)
        events = {target.pid: target.events for target in capture.targets}
        assert events[child] > 0
        assert events[job.pid] == 0
        job.check_results()


EXECS = f"""
import os, sys, threading
import profclient
profclient.attach()
print("ready", flush=True)
told = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), told.set()), daemon=True).start()
i = 0
while not told.is_set():
    with profclient.record_function("before exec"):
        profclient.counter("n", i)
    i += 1
    told.wait(0.001)
os.execv(sys.executable, [sys.executable, "-c", {COUNT!r}, sys.argv[1]])
"""


def test_another_program_in_the_same_process(daemon: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(daemon)
    with attached(daemon, tmp_path, EXECS) as job:
        assert job.process.stdin is not None
        assert job.process.stdout is not None
        capture = captures.recording(job.pid)
        job.process.stdin.write("exec\n")
        job.process.stdin.flush()
        [target] = captures.ended(capture).targets
        assert (target.state, target.reason) == (pb.STATE_PARTIAL, pb.REASON_TARGET_ENDED), target.message
        assert whole(values(daemon, target.trace))
        # What runs there now is recorded like any other.
        assert job.process.stdout.readline() == "ready\n"
        until(lambda: "sdk" in sources(daemon, job.pid), "it has attached")
        [target] = captures.record(job.pid).targets
        assert target.state == pb.STATE_STORED, target.message
        assert whole(values(daemon, target.trace))
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


HOSTILE = """
import os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from tests.support.fake_agent import FakeAgent, memfd, Kind
import asyncio
async def main():
    fake = FakeAgent(Path(sys.argv[3]))
    fake.hello(pid=1, start=1)
    await fake.expect(Kind.WELCOME)
    print("ready", flush=True)
    packet = await fake.expect(Kind.ARM)
    size = int(packet.fields["arena"])
    fd = memfd(size)
    content = os.urandom(1 << 20)
    for offset in range(0, size, len(content)):
        os.pwrite(fd, content, offset)
    fake.send(Kind.ARMED, packet.epoch, fd, first=1)
    fake.send(Kind.STATUS, packet.epoch, events=2**62, seconds="1e9" if sys.argv[4:] else "100000.5")
    try:
        while True:
            await fake.receive()
    except ConnectionResetError:
        pass
    sys.stdin.read()
asyncio.run(main())
"""


@pytest.mark.parametrize("worse", [[], ["worse"]], ids=["an arena of noise", "and a bad packet"])
def test_a_hostile_agent_harms_nobody_else(daemon: RunningDaemon, tmp_path: Path, worse: list[str]) -> None:
    root = str(Path(__file__).parents[3])
    captures = Captures(daemon)
    with attached(daemon, tmp_path) as job:
        hostile = subprocess.Popen(
            [sys.executable, "-c", HOSTILE, "", root, str(daemon.socket.with_name("agent.sock")), *worse],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert hostile.stdout is not None
            assert hostile.stdout.readline() == "ready\n"
            assert "sdk" in sources(daemon, hostile.pid)  # under its own pid, whatever it says
            capture = captures.start(hostile.pid, source="sdk")
            [good] = captures.record(job.pid).targets
            [bad] = captures.ended(capture.id).targets
            assert bad.state in (pb.STATE_PARTIAL, pb.STATE_FAILED), bad.message
            assert bad.message
            assert good.state == pb.STATE_STORED, good.message
            assert whole(values(daemon, good.trace))
            [again] = captures.record(job.pid).targets
            assert again.state == pb.STATE_STORED, again.message
        finally:
            hostile.kill()
            hostile.communicate(timeout=WAIT_SECONDS)
        job.check_results()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
