"""What a user notices of another who does all they can to a daemon of root's: captures and lists of theirs.

Each hostile program runs twice, on one core: against a stub that refuses everything, and against the daemon that the
victim uses. The victim's daemon, workers and job may run on any.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from profproto.v1 import trace_pb2, trace_pb2_grpc

from bench.measure import ROOT, SCRATCH, Row
from tests.support import people, readable
from tests.support.daemon import RunningDaemon, start_daemon
from tests.support.hostile import ATTACKS, Attack
from tests.support.small_disk import small_disk

HOSTILE, VICTIM = 5421, 5422
CAPTURES, LISTS = 5, 50
WARM_SECONDS = 2.0  # in which an attack takes hold
LEG_SECONDS = 90.0
DISK = "256m"
BAR = 2.0
LISTED = 30
PIECE = 1 << 19  # of an import, whose messages have 1 MiB at most

_IMPORTS = """
import time
from pathlib import Path
from profclient.connection import Daemon
from profproto.v1 import capture_pb2 as pb
"""
# Each takes a connection and a token of its own, as `profctl` does. What fails, or is not there in time, is told.
_VICTIM = """
here, pid, captures, lists, seconds = Path(address.removeprefix("unix:")), *map(int, rest[:3]), float(rest[3])
ends, found = time.monotonic() + seconds, {"capture": [], "list": [], "failed": []}

def one_list():
    with Daemon(here) as daemon:
        daemon.call(daemon.traces.ListTraces, trace_pb2.ListTracesRequest(limit=100), timeout=20)

def one_capture():
    options = pb.Options(duration_ns=10**9, source="pyspy")
    start = pb.StartCaptureRequest(selector=pb.Selector(pids=[pid]), options=options)
    with Daemon(here) as daemon:
        capture = daemon.call(daemon.captures.StartCapture, start, timeout=20)
        watched = daemon.stream(daemon.captures.WatchCapture, pb.WatchCaptureRequest(id=capture.id), timeout=30)
        last = next(state for state in watched if state.HasField("finished_ns"))
    if last.state != pb.STATE_STORED:
        raise RuntimeError(pb.State.Name(last.state) + ": " + last.targets[0].message)

def timed(what, do):
    began = time.perf_counter()
    try:
        do()
    except Exception as error:
        found["failed"].append(" ".join(f"{what}: {error}".split())[:200])
    else:
        found[what].append(time.perf_counter() - began)

for _ in range(captures):
    if time.monotonic() > ends:
        found["failed"].append("the time was up")
        break
    timed("capture", one_capture)
    for _ in range(lists // captures):
        timed("list", one_list)
print("RESULT", json.dumps(found), flush=True)
"""


@dataclass(frozen=True)
class Leg:
    """What the victim found, in seconds."""

    captures: list[float]
    lists: list[float]
    failed: list[str]

    def __str__(self) -> str:
        words = [f"capture {_shown(self.captures)}", f"list {_shown(self.lists)}"]
        return ", ".join([*words, f"{len(self.failed)} failed"] if self.failed else words)


def _shown(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.0f} ms (worst {max(seconds) * 1e3:.0f})" if seconds else "never"


def rows(events: int) -> Iterator[Row]:
    """The rows of this case, one for each hostile program, and the table for docs/security.md."""
    del events
    if why := readable.why_not():
        yield Row("victim", "captures and lists beside a hostile user", "", note=f"not measured: {why}")
        return
    lines = ["| beside | capture | list | failed | the same beside a stub | ratio |", "|---|---|---|---|---|---|"]
    for name, attack in _chosen().items():
        try:
            beside, stub = _measured(attack)
        except RuntimeError as error:  # the other lines are worth knowing all the same
            yield Row("victim", name, "not measured", met=False, note=str(error))
            continue
        ratio = max(_ratio(beside.captures, stub.captures), _ratio(beside.lists, stub.lists))
        met = ratio <= BAR and not beside.failed
        bar = f"<= {BAR:g}x, 0 failures"
        yield Row(
            "victim", name, str(beside), str(stub), ratio=ratio, bar=bar, met=met, note="; ".join(beside.failed[:3])
        )
        shown = f"{_shown(beside.captures)} | {_shown(beside.lists)} | {len(beside.failed)}"
        theirs = f"{_shown(stub.captures)}, {_shown(stub.lists)}" + (
            f", {len(stub.failed)} failed" if stub.failed else ""
        )
        lines.append(f"| {name} | {shown} | {theirs} | {ratio:.2f} |")
    print("\n" + "\n".join(lines))
    SCRATCH.mkdir(exist_ok=True)
    (SCRATCH / "victim.md").write_text("\n".join(lines) + "\n")


def _chosen() -> dict[str, Attack]:
    """All, or those whose name holds the words of PROFD_BENCH_ATTACK."""
    words = os.environ.get("PROFD_BENCH_ATTACK", "")
    return {name: attack for name, attack in ATTACKS.items() if words in name}


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(ours) / statistics.median(theirs) if ours and theirs else float("inf")


def _measured(attack: Attack) -> tuple[Leg, Leg]:
    """Beside the attack on the victim's own daemon, and on a stub; of one daemon, the stub first."""
    with ExitStack() as stack:
        home = _folder(stack)
        port = _free_port()
        if attack.small_disk:
            (home / "state").mkdir()
            stack.enter_context(small_disk(home / "state", DISK))
        daemon = start_daemon(home, "--metrics", f"127.0.0.1:{port}", user=False)
        stack.callback(daemon.stop)
        trace = _everybodys(daemon)
        job = stack.enter_context(people.doing(VICTIM, people.SPIN, home))
        assert job.stdout is not None
        pid = int(job.stdout.readline())
        _victim(home, pid, captures=1, lists=2)  # what is done for the first time takes longer
        with _stub(_folder(stack)) as (stub, refused):
            beside_stub = _beside(attack, stub, home, pid, trace=trace, metrics=refused)
        return _beside(attack, home, home, pid, trace=trace, metrics=port), beside_stub


def _beside(attack: Attack, attacked: Path, home: Path, pid: int, **places: object) -> Leg:
    with _running(attack.command(HOSTILE, attacked, **places), attack):
        return _victim(home, pid, captures=CAPTURES, lists=LISTS)


@contextmanager
def _running(command: list[str], attack: Attack) -> Iterator[None]:
    """The attack, on the last core, with a folder of its own for traces."""
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as made, (SCRATCH / "hostile.log").open("wb") as log:
        os.chown(made, HOSTILE, HOSTILE)
        environ = {**os.environ, "KINETO_ONDEMAND_TRACE_DIR": made, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(_pinned(command), stdout=subprocess.PIPE, stderr=log, env=environ)
        try:
            assert process.stdout is not None
            if attack.prepares:
                select.select([process.stdout], [], [], LISTED)
            time.sleep(WARM_SECONDS)
            if process.poll() is not None:
                raise RuntimeError(f"the hostile program ended: {(SCRATCH / 'hostile.log').read_text()[-1500:]}")
            yield
        finally:
            process.kill()
            process.communicate()


def _victim(home: Path, pid: int, *, captures: int, lists: int) -> Leg:
    arguments = (pid, captures, lists, LEG_SECONDS)
    command = people.command(VICTIM, _VICTIM, home, *arguments, first=_IMPORTS)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LEG_SECONDS + 60, check=False)
    except subprocess.TimeoutExpired:
        return Leg([], [], ["it did not come to its end"])
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            found = json.loads(line.removeprefix("RESULT "))
            return Leg(found["capture"], found["list"], found["failed"])
    raise RuntimeError(done.stderr[-1500:])


@contextmanager
def _stub(folder: Path) -> Iterator[tuple[Path, int]]:
    """Its directory and its port, beside the attack on its core: what it takes is of the same load."""
    port = _free_port()
    command = _pinned([sys.executable, "-m", "tests.support.refusing", str(folder), str(port)])
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError("the stub ended")
        yield folder, port
    finally:
        process.kill()
        process.communicate()


def _pinned(command: list[str]) -> list[str]:
    return ["taskset", "--cpu-list", str(max(os.sched_getaffinity(0))), *command]


def _everybodys(daemon: RunningDaemon) -> str:
    """A trace of root's that everybody may ask of."""
    stub = daemon.stub(trace_pb2_grpc.TraceServiceStub)
    events = [{"ph": "X", "name": f"f{n % 50}", "pid": 1, "tid": 1, "ts": n, "dur": 1} for n in range(20_000)]
    data = json.dumps({"traceEvents": events}).encode()
    pieces = (data[at : at + PIECE] for at in range(0, len(data), PIECE))
    chunks = (trace_pb2.ImportChunk(filename="t.json", data=piece) for piece in pieces)
    trace = stub.Import(chunks, metadata=daemon.metadata(), timeout=60).trace.id
    asked = trace_pb2.ShareTraceRequest(id=trace)
    getattr(asked, "with").append("*")
    stub.ShareTrace(asked, metadata=daemon.metadata(), timeout=60)
    return str(trace)


def _folder(stack: ExitStack) -> Path:
    """Everybody may connect there; gone with the stack."""
    folder = Path(tempfile.mkdtemp(prefix="pd-", dir="/tmp"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    return folder


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
