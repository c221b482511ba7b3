"""A capture right after a restart of the daemon: attached processes come back first, or are said to be on their way."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from profproto.v1 import capture_pb2 as pb

from tests.support.attached import Captures, attached
from tests.support.daemon import RunningDaemon, running_daemon, start_daemon
from tests.support.waiting import until


def killed(daemon: RunningDaemon, pid: int) -> None:
    """Once the file says who is attached."""
    file = daemon.state_dir / "attached.json"
    until(lambda: file.exists() and str(pid) in file.read_text(), "who is attached is written")
    daemon.kill()


def test_a_capture_waits_for_processes_that_come_back(tmp_path: Path) -> None:
    """Where a busy host was long without a daemon, the agent looks too rarely for that wait, and the answer says so."""
    with running_daemon() as daemon, attached(daemon, tmp_path) as job:
        killed(daemon, job.pid)
        again = start_daemon(daemon.directory)

        def recorded() -> pb.TargetStatus | None:
            (target,) = Captures(again).record(job.pid).targets
            return None if (target.state, target.reason) == (pb.STATE_BUSY, pb.REASON_TARGET_SILENT) else target

        try:
            target = until(recorded, "the process is back")
        finally:
            again.stop()
        assert target is not None
        assert (target.state, list(target.sources)) == (pb.STATE_STORED, ["sdk"]), target.message


def test_one_that_does_not_come_is_busy_and_not_sampled_without_a_word(tmp_path: Path) -> None:
    with running_daemon() as daemon, attached(daemon, tmp_path) as job:
        killed(daemon, job.pid)
        os.kill(job.pid, signal.SIGSTOP)  # nor does its agent look for a daemon
        again = start_daemon(daemon.directory)
        try:
            (target,) = Captures(again).record(job.pid).targets
        finally:
            again.stop()
        assert (target.state, target.reason) == (pb.STATE_BUSY, pb.REASON_TARGET_SILENT)
        assert "comes back by itself, within" in target.message
        assert "for samples instead: --source pyspy" in target.message
