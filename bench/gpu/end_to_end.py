"""(e) The whole way, from a command line to a stored trace: through kineto, through sdk, and injection alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import grpc
from profproto.v1 import capture_pb2 as pb
from profproto.v1 import trace_pb2
from profproto.v1.trace_pb2_grpc import TraceServiceStub

from bench.gpu import machine
from bench.gpu.results import Check, Result
from bench.measure import ROOT
from tests.support.attached import WAIT_SECONDS, Captures, sources, sql
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.waiting import until

WINDOW_NS = 1_000_000_000
LINKED_LEAST = 0.999
WAYS = ("kineto", "sdk", "cuda")
PROFCTL = (sys.executable, "-W", "ignore", "-c", "from profclient.cli import main; main()")


def run(loop: str = "launch_bound", ways: tuple[str, ...] = WAYS) -> Result:
    """A daemon of our own, and a job for each way."""
    result = Result("end_to_end", machine.describe())
    with running_daemon() as daemon:
        for way in ways:
            try:
                result.data[way], checks = _record(daemon, way, loop)
            except (AssertionError, grpc.RpcError) as error:
                result.checks.append(Check(f"{way}: recorded", False, str(error)[-2000:]))
            else:
                result.checks += checks
        result.checks.append(killed(daemon, loop))
    return result


def killed(daemon: RunningDaemon, loop: str) -> Check:
    """A job that is killed while it is recorded: the capture ends and says so, and the daemon lives."""
    captures = Captures(daemon)
    try:
        with job(daemon, "cuda", loop) as process:
            capture = captures.recording(process.pid)
            os.kill(process.pid, signal.SIGKILL)
            [target] = captures.ended(capture).targets
    except (AssertionError, grpc.RpcError) as error:
        return Check("kill while recording", False, str(error)[-2000:])
    told = target.reason == pb.REASON_TARGET_ENDED
    return Check("kill while recording", told and daemon.process.poll() is None, target.message)


@contextlib.contextmanager
def job(daemon: RunningDaemon, way: str, loop: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    """It works, and the daemon could record it this way. AssertionError where it does not come so far."""
    command = [sys.executable, "-m", "bench.gpu.forever", loop, *more]
    environ = {**daemon.environ}
    if way == "sdk":
        command = [*PROFCTL, "run", "--", *command]
    elif way == "kineto":
        environ |= {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": str(daemon.kineto_dir)}
    else:
        from profclient.agent import COLLECTOR

        environ["CUDA_INJECTION64_PATH"] = COLLECTOR
    process = subprocess.Popen(command, cwd=ROOT, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", f"the job of {way} did not start"
        until(lambda: way in sources(daemon, process.pid), f"the daemon can record it through {way}")
        yield process
    finally:
        process.kill()
        process.communicate()


def _record(daemon: RunningDaemon, way: str, loop: str) -> tuple[dict[str, Any], list[Check]]:
    with job(daemon, way, loop) as process:
        forced = way == "kineto"  # which can kill it
        [target] = Captures(daemon).record(process.pid, source=way, force=forced, duration_ns=WINDOW_NS).targets
        alive = process.poll() is None
    told = f"{pb.State.Name(target.state)}: {target.message} {'; '.join(target.not_honoured)}"
    checks = [
        Check(f"{way}: stored", target.state == pb.STATE_STORED, told),
        Check(f"{way}: the job goes on", alive),
    ]
    if not target.trace:
        return {"state": told}, checks
    [[kernels]] = sql(daemon, target.trace, "select count(*) from events where kind = 'kernel'")
    links = _gpu(daemon, target.trace)["links"]
    share = links["share"] or 0.0
    checks += [
        Check(f"{way}: kernels", kernels > 0, f"{kernels:,}"),
        Check(f"{way}: linked", share >= LINKED_LEAST, f"{share:.4%} of {links['stated']:,}"),
        Check(f"{way}: nothing lost", not target.lost, str([(loss.reason, loss.count) for loss in target.lost])),
    ]
    return {"state": told, "kernels": kernels, "links": links}, checks


def _gpu(daemon: RunningDaemon, trace: str) -> dict[str, Any]:
    chunks = daemon.stub(TraceServiceStub).Gpu(
        trace_pb2.TraceRef(id=trace), metadata=daemon.metadata(), timeout=WAIT_SECONDS
    )
    found: dict[str, Any] = json.loads(b"".join(chunk.data for chunk in chunks))
    return found
