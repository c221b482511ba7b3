"""Captures through a real daemon: gRPC in, stored traces out, across its death."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from profproto.v1 import capture_pb2 as pb
from profproto.v1 import trace_pb2
from profproto.v1.capture_pb2_grpc import CaptureServiceStub
from profproto.v1.trace_pb2_grpc import TraceServiceStub

from tests.support import python_jobs
from tests.support.attached import sources
from tests.support.captures import needs_ptrace
from tests.support.daemon import RunningDaemon, running_daemon, start_daemon
from tests.support.torch_jobs import needs_torch, torch_job
from tests.support.waiting import until

pytestmark = pytest.mark.slow

WAIT_SECONDS = 120.0
NOBODY = 65534


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    with running_daemon() as daemon:
        yield daemon


class Captures:
    """The capture service as a client sees it."""

    def __init__(self, daemon: RunningDaemon, token: str = "") -> None:
        self._daemon = daemon
        self._token = token
        self._stub = daemon.stub(CaptureServiceStub)

    def call(self, name: str, request: Any) -> Any:
        metadata = (("profd-token", self._token),) if self._token else self._daemon.metadata()
        return getattr(self._stub, name)(request, metadata=metadata, timeout=WAIT_SECONDS)

    def start(self, *pids: int, request_id: str = "", open_ended: bool = False, **options: Any) -> pb.Capture:
        asked = (
            pb.Options(**options) if open_ended else pb.Options(**{"duration_ns": python_jobs.SAMPLED_NS, **options})
        )
        selector = pb.Selector(pids=pids)
        request = pb.StartCaptureRequest(selector=selector, options=asked, request_id=request_id, open_ended=open_ended)
        found: pb.Capture = self.call("StartCapture", request)
        return found

    def get(self, capture: str) -> pb.Capture:
        found: pb.Capture = self.call("GetCapture", pb.CaptureRef(id=capture))
        return found

    def until(self, capture: str, reached: Callable[[pb.Capture], bool], *, lease: bool = False) -> pb.Capture:
        for state in self.call("WatchCapture", pb.WatchCaptureRequest(id=capture, lease=lease)):
            if reached(state):
                found: pb.Capture = state
                return found
        raise AssertionError(f"the capture ended otherwise: {self.get(capture)}")

    def ended(self, capture: str) -> pb.Capture:
        return self.until(capture, lambda state: state.HasField("finished_ns"))


def without_load(capture: pb.Capture) -> pb.Capture:
    """All that was known at its end: what its processes take of the host is looked at once more, seconds later."""
    found = pb.Capture()
    found.CopyFrom(capture)
    for target in found.targets:
        target.ClearField("load")
    return found


def traces(daemon: RunningDaemon) -> set[str]:
    stub = daemon.stub(TraceServiceStub)
    listed = stub.ListTraces(trace_pb2.ListTracesRequest(), metadata=daemon.metadata(), timeout=WAIT_SECONDS)
    return {trace.id for trace in listed.traces}


@needs_ptrace
def test_a_python_process(daemon: RunningDaemon) -> None:
    captures = Captures(daemon)
    with python_jobs.running(python_jobs.SPIN) as job:
        capture = captures.ended(captures.start(job.pid).id)
        again = captures.start(job.pid, request_id="same")
        assert captures.start(job.pid, request_id="same").id == again.id
        captures.ended(again.id)
    target = capture.targets[0]
    assert (capture.state, list(target.sources)) == (pb.STATE_STORED, ["pyspy"]), target.message
    assert target.events > 0
    assert target.trace in traces(daemon)


@needs_torch
def test_a_torch_process(daemon: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(daemon)
    with torch_job("train", tmp_path, socket_dir=daemon.kineto_dir) as job:
        until(lambda: "kineto" in sources(daemon, job.pid), "torch registers")
        capture = captures.start(job.pid, source="kineto", force=True, memory=True)
        busy = captures.start(job.pid, source="pyspy")
        if not captures.get(capture.id).HasField("finished_ns"):  # it was held all the time then
            assert (busy.state, busy.targets[0].reason) == (pb.STATE_BUSY, pb.REASON_CAPTURE_RUNNING)
            assert capture.id in busy.targets[0].message
        capture = captures.ended(capture.id)
    target = capture.targets[0]
    assert (capture.state, list(target.sources)) == (pb.STATE_STORED, ["kineto"]), target.message
    assert target.events > 100
    assert [line.partition(":")[0] for line in target.not_honoured] == ["memory"]
    assert [phase.name for phase in target.waterfall][-2:] == ["decode", "store"]


@needs_ptrace
def test_an_open_ended_capture_is_stopped(daemon: RunningDaemon) -> None:
    captures = Captures(daemon)
    with python_jobs.running(python_jobs.SPIN) as job:
        capture = captures.start(job.pid, open_ended=True)
        captures.until(capture.id, lambda state: state.state == pb.STATE_RECORDING, lease=True)
        captures.call("StopCapture", pb.CaptureRef(id=capture.id))
        # Stopped before py-spy had a sample it is cancelled.
        assert captures.ended(capture.id).state in (pb.STATE_STORED, pb.STATE_CANCELLED)


@needs_ptrace
def test_where(daemon: RunningDaemon) -> None:
    with python_jobs.running(python_jobs.SPIN) as job:
        answer = Captures(daemon).call("Where", pb.WhereRequest(selector=pb.Selector(pids=[job.pid])))
    (process,) = answer.processes
    assert "outer" in {frame.function for thread in process.threads for frame in thread.frames}, process.error


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (pb.StartCaptureRequest(selector=pb.Selector(pids=[2**22 + 1]), open_ended=True), "NOT_FOUND"),
        (pb.StartCaptureRequest(selector=pb.Selector(pids=[1])), "INVALID_ARGUMENT"),
        (pb.StartCaptureRequest(open_ended=True), "INVALID_ARGUMENT"),
    ],
)
def test_refused_requests(daemon: RunningDaemon, request_: pb.StartCaptureRequest, code: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        Captures(daemon).call("StartCapture", request_)
    assert caught.value.code() is grpc.StatusCode[code]


def test_the_switch(daemon: RunningDaemon) -> None:
    captures = Captures(daemon)
    (daemon.state_dir / "disabled").write_text("maintenance")
    try:
        with pytest.raises(grpc.RpcError, match="maintenance") as caught:
            captures.start(os.getpid())
    finally:
        (daemon.state_dir / "disabled").unlink()
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory whose paths are short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="pd-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def started(folder: Path) -> Iterator[RunningDaemon]:
    """A daemon in this folder. It ends with the block, also where a test fails before it has ended it."""
    daemon = start_daemon(folder)
    try:
        yield daemon
    finally:
        daemon.stop()


@needs_ptrace
def test_after_kill_9_everything_has_its_terminal_state(folder: Path) -> None:
    with python_jobs.running(python_jobs.SPIN) as one, python_jobs.running(python_jobs.SPIN) as two:
        with started(folder) as daemon:
            captures = Captures(daemon)
            stored = captures.ended(captures.start(one.pid).id)
            running = captures.start(two.pid, request_id="mine", duration_ns=60_000_000_000)
            captures.until(running.id, lambda state: state.state == pb.STATE_RECORDING)
            daemon.kill()

        with started(folder) as daemon:
            captures = Captures(daemon)
            assert without_load(captures.get(stored.id)) == without_load(stored)
            assert traces(daemon) == {stored.targets[0].trace}
            found = captures.start(two.pid, request_id="mine", duration_ns=60_000_000_000)
            assert (found.id, found.state) == (running.id, pb.STATE_FAILED)
            assert found.targets[0].reason == pb.REASON_DAEMON_RESTARTED
            assert captures.ended(captures.start(two.pid).id).state == pb.STATE_STORED


@needs_ptrace
def test_an_orderly_end_ends_captures(folder: Path) -> None:
    with python_jobs.running(python_jobs.SPIN) as job, started(folder) as daemon:
        captures = Captures(daemon)
        running = captures.start(job.pid, duration_ns=60_000_000_000)
        captures.until(running.id, lambda state: state.state == pb.STATE_RECORDING)
        assert daemon.stop() == 0

    with started(folder) as daemon:
        found = Captures(daemon).get(running.id)
        target = found.targets[0]
        # Stopped before py-spy had a sample it is cancelled; either way the daemon's end is the reason given.
        assert found.state in (pb.STATE_STORED, pb.STATE_CANCELLED), target.message
        assert "profd was stopped" in (target.warnings[0] if target.trace else target.message)
        assert traces(daemon) == ({target.trace} if target.trace else set())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_users_have_their_own_processes(folder: Path) -> None:
    folder.chmod(0o755)
    daemon = start_daemon(folder, user=False)
    try:
        with python_jobs.running(python_jobs.SPIN) as roots, somebody_else(daemon) as (token, own_pid):
            roots_capture = Captures(daemon).start(roots.pid)
            captures = Captures(daemon, token)
            assert refused(lambda: captures.start(roots.pid)) is grpc.StatusCode.PERMISSION_DENIED
            assert refused(lambda: captures.get(roots_capture.id)) is grpc.StatusCode.NOT_FOUND
            both = captures.start(own_pid, roots.pid)
            theirs = next(target for target in both.targets if target.pid == roots.pid)
            assert (theirs.state, theirs.reason) == (pb.STATE_REFUSED, pb.REASON_NOT_PERMITTED)
            seen = captures.call("ListTargets", pb.ListTargetsRequest(all=True))
            assert {target.uid for target in seen.targets} <= {NOBODY}
            switch = pb.SetEnabledRequest(enabled=False)
            assert refused(lambda: captures.call("SetEnabled", switch)) is grpc.StatusCode.PERMISSION_DENIED
            Captures(daemon).ended(roots_capture.id)
    finally:
        daemon.stop()


def refused(call: Callable[[], Any]) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code()


@contextlib.contextmanager
def somebody_else(daemon: RunningDaemon) -> Iterator[tuple[str, int]]:
    """Another user's living process: its token and its pid. Skips where there is no Python it can run."""
    program = (
        "import json, socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET);"
        "s.connect(sys.argv[1]); print(json.loads(s.recv(65536))['token'], flush=True); sys.stdin.read()"
    )
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            process = subprocess.Popen(
                [python, "-c", program, str(daemon.control)],
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        except OSError:
            continue
        with process:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), process.pid
            process.kill()
        return
    pytest.skip(f"uid {NOBODY} can run no Python here")
