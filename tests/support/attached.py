"""Programs that attach themselves to a real daemon, and what a capture of them must hold.

    with attached(daemon, tmp_path) as job:
        capture = Captures(daemon).record(job.pid)
        values(daemon, capture.targets[0].trace)

The program counts: every value of its counter `n` that falls into a window must be in the trace exactly once.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
from profproto.v1 import capture_pb2 as pb
from profproto.v1 import trace_pb2
from profproto.v1.capture_pb2_grpc import CaptureServiceStub
from profproto.v1.trace_pb2_grpc import TraceServiceStub

from tests.support.daemon import RunningDaemon
from tests.support.waiting import until

WAIT_SECONDS = 120.0
WINDOW_NS = 300_000_000
HOUR_NS = 500 * 1_000_000_000

# Part of each program: `shared` is what `Attached.count` reads, and `done` is set when standard input ends.
READY = """
shared = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 8)
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
print("ready", flush=True)
"""

# Ends when its standard input does, and prints how far it came and what it computed.
COUNT = f"""
import mmap, os, sys, threading, time
import profclient
profclient.attach()
checksum = i = 0
{READY}
while not done.is_set():
    with profclient.record_function("work"):
        profclient.counter("n", i)
        checksum = (checksum * 31 + i) % 1000003
    i += 1
    shared[:8] = i.to_bytes(8, "little")
    if i % 20 == 0:
        time.sleep(0.002)
print(i, checksum, flush=True)
"""


class Attached:
    """A program that runs, and how far it has counted."""

    def __init__(self, process: subprocess.Popen[str], count: Path) -> None:
        self.process = process
        self.pid = process.pid
        self._count = count

    @property
    def count(self) -> int:
        """Values below this one have been recorded, if it was being recorded."""
        with self._count.open("rb") as file, mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ) as shared:
            return int.from_bytes(shared[:8], "little")

    def counts_on(self) -> None:
        """Wait until it has done some more of its work."""
        seen = self.count
        until(lambda: self.count > seen + 20, "the program works")

    def check_results(self) -> None:
        """End it: what it computed is what it computes alone."""
        out, _ = self.process.communicate(timeout=WAIT_SECONDS)
        assert self.process.returncode == 0, out
        count, checksum = map(int, out.split()[-2:])
        alone = 0
        for i in range(count):
            alone = (alone * 31 + i) % 1000003
        assert checksum == alone


def spawn(
    daemon: RunningDaemon,
    folder: Path,
    program: str = COUNT,
    *,
    environ: dict[str, str] | None = None,
    uid: int | None = None,
) -> Attached:
    """Start it, as another user if told; it has attached, or tries to, when this returns."""
    count = folder / f"count-{time.monotonic_ns()}"
    count.write_bytes(bytes(8))
    count.chmod(0o666)
    who: dict[str, Any] = {} if uid is None else {"user": uid, "group": uid, "extra_groups": []}
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**daemon.environ, **(environ or {})},
        **who,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return Attached(process, count)


@contextlib.contextmanager
def attached(
    daemon: RunningDaemon,
    folder: Path,
    program: str = COUNT,
    *,
    environ: dict[str, str] | None = None,
    uid: int | None = None,
) -> Iterator[Attached]:
    """A program that the daemon knows; killed at the end, if it still runs."""
    job = spawn(daemon, folder, program, environ=environ, uid=uid)
    try:
        until(lambda: "sdk" in sources(daemon, job.pid), "the program is attached")
        yield job
    finally:
        job.process.kill()
        job.process.communicate()


class Captures:
    """The capture service as a client sees it."""

    def __init__(self, daemon: RunningDaemon, *, apart: bool = False) -> None:
        self._daemon = daemon
        self._stub = daemon.stub(CaptureServiceStub, apart=apart)

    def call(self, name: str, request: Any) -> Any:
        return getattr(self._stub, name)(request, metadata=self._daemon.metadata(), timeout=WAIT_SECONDS)

    def start(self, *pids: int, open_ended: bool = False, **options: Any) -> pb.Capture:
        asked = {} if open_ended else {"duration_ns": WINDOW_NS}
        request = pb.StartCaptureRequest(
            selector=pb.Selector(pids=pids), options=pb.Options(**{**asked, **options}), open_ended=open_ended
        )
        found: pb.Capture = self.call("StartCapture", request)
        return found

    def until(self, capture: str, reached: Callable[[pb.Capture], bool]) -> pb.Capture:
        for state in self.call("WatchCapture", pb.WatchCaptureRequest(id=capture)):
            if reached(state):
                found: pb.Capture = state
                return found
        raise AssertionError(f"the capture ended otherwise: {self.get(capture)}")

    def get(self, capture: str) -> pb.Capture:
        found: pb.Capture = self.call("GetCapture", pb.CaptureRef(id=capture))
        return found

    def recording(self, *pids: int, **options: Any) -> str:
        """Start a capture with a long window; its id, when it records."""
        capture = self.start(*pids, **{"duration_ns": HOUR_NS, **options}).id
        self.until(capture, lambda c: all(target.state >= pb.STATE_RECORDING for target in c.targets))
        return capture

    def stop(self, capture: str) -> pb.Capture:
        self.call("StopCapture", pb.CaptureRef(id=capture))
        return self.ended(capture)

    def ended(self, capture: str) -> pb.Capture:
        return self.until(capture, lambda state: state.HasField("finished_ns"))

    def record(self, *pids: int, **options: Any) -> pb.Capture:
        return self.ended(self.start(*pids, **options).id)


def sources(daemon: RunningDaemon, pid: int) -> list[str]:
    """What the daemon could record this process with. Nothing where it has not answered, as on a busy host."""
    stub = daemon.stub(CaptureServiceStub)
    request = pb.ListTargetsRequest(selector=pb.Selector(pids=[pid]))
    try:
        found = stub.ListTargets(request, metadata=daemon.metadata(), timeout=WAIT_SECONDS)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.NOT_FOUND and "does not answer" in str(error.details()):
            return []
        raise
    return [source for target in found.targets for source in target.sources]


def sql(daemon: RunningDaemon, trace: str, question: str) -> list[list[Any]]:
    """Rows of an answer."""
    stub = daemon.stub(TraceServiceStub)
    request = trace_pb2.SqlRequest(id=trace, sql=question)
    chunks = stub.Sql(request, metadata=daemon.metadata(), timeout=WAIT_SECONDS)
    answer = json.loads(b"".join(chunk.data for chunk in chunks))
    rows: list[list[Any]] = answer["rows"]
    return rows


def values(daemon: RunningDaemon, trace: str) -> list[int]:
    """What the program counted in this trace, in the order of time."""
    rows = sql(daemon, trace, "select cast(value as bigint) from events where name = 'n' order by start_ns, value")
    return [value for (value,) in rows]


def whole(found: list[int]) -> bool:
    """Every value from the first to the last, exactly once."""
    return bool(found) and found == list(range(found[0], found[-1] + 1))


def assert_covers(found: list[int], before: int, after: int) -> None:
    """The values are whole, and are those of the time between two looks at the program's count.

    `before`: when it was being recorded already; `after`: when it still was, or died.
    """
    assert whole(found), found
    assert found[0] <= before
    assert found[-1] >= after - 1  # values below the count have been recorded; of a killed one, all but the last


def lost(target: pb.TargetStatus) -> dict[str, int]:
    """By reason."""
    return {loss.reason: loss.count for loss in target.lost}


def streamers(daemon: RunningDaemon) -> list[int]:
    """Pids of the daemon's streamers."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):
            command = Path("/proc", entry, "cmdline").read_bytes()
            if b"profd.attached.ingest.streamer" in command and str(daemon.socket).encode() in command:
                found.append(int(entry))
    return found
