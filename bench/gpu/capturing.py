"""(l) A job of PyTorch that captures CUDA graphs nearly all the time, recorded each way: does it live? At most 110 s.

Whatever waits for a context, or asks an event, from another thread ends the capture, and so the job
(`python -m bench.gpu queue`). Each way is a job of its own, recorded several times.
"""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from typing import Any

import grpc
from profproto.v1 import capture_pb2 as pb

from bench.gpu import device, machine
from bench.gpu.end_to_end import job
from bench.gpu.results import Check, Result
from tests.support.attached import Captures
from tests.support.daemon import RunningDaemon, running_daemon

SECONDS = device.of(110, rehearsed=300)
WINDOW_NS = 400_000_000
TIMES = device.of(5, rehearsed=1)


@dataclass(frozen=True, slots=True)
class Way:
    """How it is recorded. `ours`: that the job lives is promised."""

    source: str
    loop: str = "capturing"
    ours: bool = True
    options: tuple[tuple[str, Any], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()


WAYS: dict[str, Way] = {  # most telling first
    "sdk": Way("sdk"),
    "cuda": Way("cuda"),
    "kineto": Way("kineto", ours=False, options=(("force", True),)),
    "fallback": Way("sdk", "profiled_capturing", options=(("gpu_fallback", True), ("torch", "observer"))),
    "fallback_forced": Way(
        "sdk",
        "profiled_capturing",
        ours=False,
        options=(("gpu_fallback", True), ("torch", "observer"), ("force", True)),
    ),
    "operators": Way("sdk", options=(("torch", "observer"),)),
    "detach": Way("sdk", settings=(("PROFD_GPU_DETACH", "true"),), ours=False),
    "torch_profiler": Way("sdk", ours=False, options=(("torch", "profiler"), ("force", True))),
}


def run() -> Result:
    """All ways, one job after the other."""
    result = Result("capturing", machine.describe())
    deadline = time.monotonic() + SECONDS
    for name, way in WAYS.items():
        if time.monotonic() > deadline - 10:
            result.checks.append(Check(f"{name}: lives", None, "no time was left"))
            continue
        with running_daemon(environ=dict(way.settings)) as daemon:
            found = result.data[name] = _recorded(daemon, way, deadline)
        check = judge(name, found)
        result.checks.append(check)
        print(f"capturing: {check.passed} {name}: {check.detail}", flush=True)
    return result


def judge(name: str, found: dict[str, Any]) -> Check:
    """That the job lives is promised of our own ways; of others' parts it is asked."""
    lived = found["ended"] == "" and found["captures"] != []
    return Check(f"{name}: lives", True if lived else (False if WAYS[name].ours else None), str(found)[:1500])


def _recorded(daemon: RunningDaemon, way: Way, deadline: float) -> dict[str, Any]:
    captures: list[str] = []
    found: dict[str, Any] = {"captures": captures, "ended": ""}
    try:
        with job(daemon, way.source, way.loop) as process:
            for _ in range(TIMES):
                if time.monotonic() > deadline:
                    break
                options = dict(way.options)
                target = (
                    Captures(daemon).record(process.pid, source=way.source, duration_ns=WINDOW_NS, **options).targets[0]
                )
                told = "; ".join((target.message, *target.not_honoured))[:300]
                captures.append(f"{pb.State.Name(target.state)} {told}")
                try:
                    found["ended"] = f"exit {process.wait(0.3)}"
                    break
                except subprocess.TimeoutExpired:
                    continue
    except (AssertionError, grpc.RpcError) as error:
        found["ended"] = found["ended"] or str(error)[-600:]
    return found
