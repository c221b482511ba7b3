"""A daemon whose state directory is a disk of a few MiB: one user fills neither it nor the slots of imports."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from profd.limits import IMPORTS_PER_UID_MAX
from profproto.v1 import capture_pb2 as pb
from profproto.v1 import trace_pb2, trace_pb2_grpc

from tests.support.attached import COUNT, HOUR_NS, Captures, attached, values, whole
from tests.support.daemon import RunningDaemon, start_daemon
from tests.support.small_disk import free_bytes, small_disk

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk and be two users")

ANN, BOB = 4731, 4732
LONG = 120.0
FAST = COUNT.replace("time.sleep(0.002)", "pass")
TRACE = json.dumps({"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}]}).encode()
TOKEN = """
import json, os, socket, sys
control, uid = sys.argv[1], int(sys.argv[2])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(control)
print(json.loads(sock.recv(65536))["token"], flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def on_a_small_disk(*flags: str, user: bool = False) -> Iterator[RunningDaemon]:
    directory = Path(tempfile.mkdtemp(prefix="pd-", dir="/tmp"))
    directory.chmod(0o755)
    (directory / "state").mkdir()
    try:
        with small_disk(directory / "state", "12m"):
            started = start_daemon(directory, *flags, environ={"PROFD_SDK_ARENA_BYTES": "24MiB"}, user=user)
            try:
                yield started
            finally:
                started.stop()
    finally:
        shutil.rmtree(directory)


@pytest.fixture
def daemon() -> Iterator[RunningDaemon]:
    with on_a_small_disk("--store-bytes", "4MiB") as found:
        yield found


class User:
    """Somebody who imports."""

    def __init__(self, daemon: RunningDaemon, token: str) -> None:
        self._stub = daemon.stub(trace_pb2_grpc.TraceServiceStub)
        self._metadata = (("profd-token", token),)

    def begin(self, pieces: Iterator[bytes]) -> grpc.Future:
        chunks = (trace_pb2.ImportChunk(filename="t.json", data=piece) for piece in pieces)
        return self._stub.Import.future(chunks, metadata=self._metadata, timeout=LONG)

    def imports(self) -> str:
        return str(self.begin(iter([TRACE])).result().trace.id)

    def fails(self, call: grpc.Future) -> str:
        """The sentence of a call that is refused for a limit."""
        error = call.exception()
        assert isinstance(error, grpc.RpcError)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, error
        return str(error.details())


@contextlib.contextmanager
def user(daemon: RunningDaemon, uid: int) -> Iterator[User]:
    program = [sys.executable, "-c", TOKEN, str(daemon.control), str(uid)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield User(daemon, process.stdout.readline().strip())
        process.kill()


def test_an_import_without_end_is_ended_and_others_go_on(daemon: RunningDaemon) -> None:
    lowest = free_bytes(daemon.state_dir)
    half_way, go_on = threading.Event(), threading.Event()

    def endless() -> Iterator[bytes]:
        nonlocal lowest
        for number in range(100):
            if number == 20:
                half_way.set()
                assert go_on.wait(LONG)
            lowest = min(lowest, free_bytes(daemon.state_dir))
            yield bytes(100_000)

    with user(daemon, ANN) as ann, user(daemon, BOB) as bob:
        call = ann.begin(endless())
        assert half_way.wait(LONG)
        assert bob.imports()
        go_on.set()
        assert "that one user may hold" in ann.fails(call)
        assert lowest > 3 << 20
        assert bob.imports()
        assert ann.imports()


def test_imports_of_one_user_that_stall_keep_nobody_else_out(daemon: RunningDaemon) -> None:
    release = threading.Event()

    def stalling() -> Iterator[bytes]:
        yield b"{"
        release.wait(LONG)

    with user(daemon, ANN) as ann, user(daemon, BOB) as bob:
        calls = [ann.begin(stalling()) for _ in range(IMPORTS_PER_UID_MAX + 1)]
        refused = next(call for call in completed(calls))
        assert f"{IMPORTS_PER_UID_MAX} of {IMPORTS_PER_UID_MAX} imports at once" in ann.fails(refused)
        assert bob.imports()
        for call in calls:
            call.cancel()
        release.set()


def completed(calls: list[grpc.Future]) -> Iterator[grpc.Future]:
    """In the order in which they end."""
    ended, done = threading.Semaphore(0), list[grpc.Future]()

    def note(call: grpc.Future) -> None:
        done.append(call)
        ended.release()

    for call in calls:
        call.add_done_callback(note)
    for number in range(len(calls)):
        assert ended.acquire(timeout=LONG)
        yield done[number]


def test_what_would_go_is_told(daemon: RunningDaemon) -> None:
    with user(daemon, ANN) as ann:
        ann.imports()
    told = evictions(daemon, "0")
    assert (told["traces"], told["others"], told["refusal"]) == ([], 0, "")
    assert (told["limit_bytes"], told["share_bytes"], told["own_bytes"]) == (4 << 20, 2 << 20, 0)
    assert told["stored_bytes"] > 0
    assert "2 users share the" in evictions(daemon, "4MiB")["refusal"]


def evictions(daemon: RunningDaemon, size: str) -> dict[str, Any]:
    profctl = [sys.executable, "-W", "ignore", "-c", "from profclient.cli import main; main()"]
    command = [*profctl, "store", "evictions", "--size", size, "--json"]
    done = subprocess.run(command, env=daemon.environ, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_recording_ends_with_what_it_has_and_can_be_stored(tmp_path: Path) -> None:
    """The program goes on; nothing that was recorded is lost uncounted."""
    with on_a_small_disk("--store-bytes", "8MiB", user=True) as daemon, attached(daemon, tmp_path, FAST) as job:
        captures = Captures(daemon)
        capture = captures.start(job.pid, duration_ns=HOUR_NS, force=True)
        [target] = captures.until(capture.id, lambda state: state.HasField("finished_ns")).targets
        assert (target.state, target.reason) == (pb.STATE_PARTIAL, pb.REASON_DISK_FULL), target.message
        found = values(daemon, target.trace)
        assert len(found) > 1000
        assert len(set(found)) == len(found)
        assert whole(found) or target.lost  # a busy machine fills the arena, too
        assert free_bytes(daemon.state_dir) > 1 << 20
        job.counts_on()
        job.check_results()
