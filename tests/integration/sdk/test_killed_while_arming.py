"""A process is told to record before its capture is on the disk: daemons that are killed in between.

The disk stands still where the test says so, in the daemon itself: a sitecustomize of the test's holds the call that
makes a capture's directory, or that puts its record in place.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from profproto.v1 import capture_pb2 as pb
from profproto.v1.capture_pb2_grpc import CaptureServiceStub

from tests.support.attached import HOUR_NS, Attached, Captures, attached, sources, values, whole
from tests.support.daemon import RunningDaemon, start_daemon
from tests.support.in_proc import descriptors
from tests.support.waiting import until

pytestmark = pytest.mark.slow

HELD = """
import os, time
gate = os.environ["TEST_HELD"]
def held(call, name, part):
    def wait(*arguments, **more):
        while os.path.exists(gate + name) and any(part in str(each) for each in arguments):
            time.sleep(0.005)
        return call(*arguments, **more)
    return wait
os.mkdir = held(os.mkdir, "directory", "/journal/")
os.rename = held(os.rename, "record", "/records/captures/")
"""


@dataclass
class HeldDisk:
    """A folder for daemons whose disk can be held."""

    folder: Path

    def daemon(self) -> RunningDaemon:
        environ = {"PYTHONPATH": str(self.folder / "python"), "TEST_HELD": f"{self.folder}/held-"}
        return start_daemon(self.folder, environ=environ)

    def hold(self, what: str) -> None:
        (self.folder / f"held-{what}").touch()

    def let(self, what: str) -> None:
        (self.folder / f"held-{what}").unlink()


@pytest.fixture
def disk() -> Iterator[HeldDisk]:
    folder = Path(tempfile.mkdtemp(prefix="pd-", dir="/tmp"))
    (folder / "python").mkdir()
    (folder / "python" / "sitecustomize.py").write_text(HELD)
    yield HeldDisk(folder)
    shutil.rmtree(folder, ignore_errors=True)


def arenas(pid: int) -> int:
    """That are open in a process."""
    return sum("profd-arena" in name for name in descriptors(pid))


def left(daemon: RunningDaemon) -> list[Path]:
    """Of the journal."""
    return list((daemon.state_dir / "journal").rglob("*"))


def is_as_before(daemon: RunningDaemon, job: Attached) -> None:
    """Nothing of the killed daemon's is armed in it, and it can be recorded."""
    until(lambda: arenas(job.pid) == 0, "it is disarmed")
    until(lambda: "sdk" in sources(daemon, job.pid), "it is free")
    [target] = Captures(daemon).record(job.pid).targets
    assert target.state == pb.STATE_STORED, target.message
    assert whole(values(daemon, target.trace))
    job.check_results()
    until(lambda: left(daemon) == [], "the journal is empty")


def test_before_the_journal_has_it(disk: HeldDisk, tmp_path: Path) -> None:
    daemon = disk.daemon()
    try:
        with attached(daemon, tmp_path) as job:
            disk.hold("directory")
            capture = Captures(daemon).start(job.pid, duration_ns=HOUR_NS).id
            until(lambda: arenas(job.pid) == 1, "it is armed")
            daemon.kill()
            assert left(daemon) == []
            disk.let("directory")
            daemon = disk.daemon()
            [target] = Captures(daemon).ended(capture).targets
            assert (target.state, target.reason) == (pb.STATE_FAILED, pb.REASON_DAEMON_RESTARTED), target.message
            assert not target.trace
            is_as_before(daemon, job)
    finally:
        daemon.stop()


def test_before_the_capture_is_recorded(disk: HeldDisk, tmp_path: Path) -> None:
    daemon = disk.daemon()
    try:
        with attached(daemon, tmp_path) as job, ThreadPoolExecutor(1) as elsewhere:
            disk.hold("record")
            answer = elsewhere.submit(Captures(daemon).start, job.pid, duration_ns=HOUR_NS)
            until(lambda: any(path.name == "chunks.pfc" and path.stat().st_size for path in left(daemon)), "it streams")
            daemon.kill()
            with pytest.raises((grpc.RpcError, ValueError)):  # nobody was told that there is a capture
                answer.result()
            disk.let("record")
            daemon = disk.daemon()
            listed = daemon.stub(CaptureServiceStub).ListCaptures(
                pb.ListCapturesRequest(), metadata=daemon.metadata(), timeout=120
            )
            assert not listed.captures
            is_as_before(daemon, job)
    finally:
        daemon.stop()


def test_without_another_daemon_it_disarms_itself(disk: HeldDisk, tmp_path: Path) -> None:
    daemon = disk.daemon()
    try:
        with attached(daemon, tmp_path) as job:
            disk.hold("directory")
            Captures(daemon).start(job.pid, duration_ns=HOUR_NS)
            until(lambda: arenas(job.pid) == 1, "it is armed")
            daemon.kill()
            until(lambda: arenas(job.pid) == 0, "it is disarmed")
            job.counts_on()
            job.check_results()
    finally:
        daemon.stop()
