"""A daemon, and a target that keeps the lock of its arena's inode for ever."""

from __future__ import annotations

from pathlib import Path

import pytest
from profproto.v1 import capture_pb2 as pb

from tests.support.attached import Captures, attached
from tests.support.daemon import running_daemon
from tests.support.locked_inode import locked, why_not
from tests.support.long import long

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]


def arena_of(pid: int) -> Path:
    return next(fd for fd in Path(f"/proc/{pid}/fd").iterdir() if "profd-arena" in str(fd.readlink()))


@long  # its streamer is given up after a minute
def test_the_daemon_answers_and_ends(tmp_path: Path) -> None:
    with running_daemon() as daemon:
        captures = Captures(daemon)
        with attached(daemon, tmp_path) as job:
            capture = captures.recording(job.pid)
            job.counts_on()
            with locked(arena_of(job.pid), tmp_path / "mount"):
                # WHEN its streamer waits for the lock: what was recorded has arrived by then
                [target] = captures.stop(capture).targets
                assert target.state == pb.STATE_STORED, target.message
                # THEN the same user's next capture ends with a sentence
                [target] = captures.record(job.pid, source="sdk").targets
                assert "keeps an arena locked" in target.message
                assert daemon.stop() == 0
