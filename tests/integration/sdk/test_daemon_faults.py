"""Daemons and streamers that are killed, stopped, late, slow, or out of disk while a program is recorded.

Which faults there are, and where each is tested: test_faults.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from profproto.v1 import capture_pb2 as pb

from soak import victims
from tests.support.attached import (
    COUNT,
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
from tests.support.daemon import RunningDaemon, start_daemon
from tests.support.in_proc import descriptors
from tests.support.sdk_jobs import attaching
from tests.support.waiting import until

pytestmark = pytest.mark.slow


FAST = COUNT.replace("    if i % 20 == 0:\n        time.sleep(0.002)\n", "")


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


def test_a_killed_porter_is_replaced_and_nothing_is_missing(own_daemon: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(own_daemon)
    with attached(own_daemon, tmp_path) as job:
        capture = captures.recording(job.pid)
        before = job.count
        for _ in range(2):
            job.counts_on()
            [pid] = victims.having(own_daemon.process.pid, "porter")
            assert victims.killed(pid, "porter")
            until(
                lambda pid=pid: victims.having(own_daemon.process.pid, "porter") not in ([], [pid]), "there is another"
            )
        job.counts_on()
        after = job.count
        [target] = captures.stop(capture).targets
        assert target.state == pb.STATE_STORED, target.message
        assert_covers(values(own_daemon, target.trace), before, after)
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
        [target] = captures.ended(capture).targets  # asked at once: no other end comes before it
        if target.state == pb.STATE_FAILED:
            # The daemon was not back within 15 s: what had arrived before is there.
            assert target.reason == pb.REASON_DAEMON_RESTARTED, target.message
            captures.call("RetryCapture", pb.CaptureRef(id=capture))
            [target] = captures.ended(capture).targets
        else:
            assert target.reason == pb.REASON_DAEMON_RESTARTED, target.message
            assert values(again, target.trace)[-1] >= during  # what was recorded without a daemon is there, too
        assert target.state == pb.STATE_PARTIAL, target.message
        until(lambda: "sdk" in sources(again, job.pid), "it is ready again")
        found = values(again, target.trace)
        assert whole(found)
        assert found[0] <= before
        [target] = captures.record(job.pid).targets
        assert target.state == pb.STATE_STORED, target.message
        job.check_results()


GIVES_UP_SOON = COUNT.replace("profclient.attach()", attaching(grace_ms=200))


def test_a_daemon_that_comes_too_late_says_how_much_is_lost(own_daemon: RunningDaemon, tmp_path: Path) -> None:
    """Nothing of it has arrived, and the process keeps it for a while only."""
    with attached(own_daemon, tmp_path, GIVES_UP_SOON) as job:
        captures = Captures(own_daemon)
        captures.record(job.pid)
        [streamer] = streamers(own_daemon)  # it waits for more
        os.kill(streamer, signal.SIGSTOP)
        capture = captures.recording(job.pid)
        before = job.count
        job.counts_on()
        during = job.count
        own_daemon.kill()
        with contextlib.suppress(ProcessLookupError):
            os.kill(streamer, signal.SIGKILL)
        until(lambda: not any("profd-arena" in name for name in descriptors(job.pid)), "its memory is let go of")
        own_daemon.process = start_daemon(own_daemon.directory).process
        [target] = Captures(own_daemon).ended(capture).targets
        assert (target.state, target.reason) == (pb.STATE_FAILED, pb.REASON_DAEMON_RESTARTED), target.message
        assert lost(target)["missing"] >= during - before
        assert f"none of the {lost(target)['missing']:,} events" in target.message
        assert "retry" not in target.message
        until(lambda: not list(own_daemon.state_dir.glob("journal/*")), "nothing is kept of it")
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
        [target] = captures.ended(capture).targets
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
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=755", "tmpfs", state], capture_output=True)
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
            until(lambda: any(file.stat().st_size for file in state.glob("journal/*/*/chunks.pfc")), "events arrive")
            # It ends when a twentieth is left (256 MiB of a large disk), so that what there is can be stored.
            with (state / "ballast").open("wb") as ballast:
                os.posix_fallocate(ballast.fileno(), 0, 61 << 20)
            [target] = captures.ended(capture).targets
            assert (target.state, target.reason) == (pb.STATE_PARTIAL, pb.REASON_DISK_FULL), target.message
            assert whole(values(daemon, target.trace))
            job.counts_on()
            (state / "ballast").unlink()
            until(lambda: "sdk" in sources(daemon, job.pid), "it is ready again")
            [target] = captures.record(job.pid).targets
            assert target.state == pb.STATE_STORED, target.message
            job.check_results()
    finally:
        subprocess.run(["umount", state], check=False)
        shutil.rmtree(folder, ignore_errors=True)
