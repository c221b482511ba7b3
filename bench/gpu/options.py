"""(f) The opt-in ways: operators timed by CUDA events, and the settings that profd leaves out and must name.

Each is a capture of its own daemon. CUDA graphs as one: bench/gpu/whole.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
from profd.query.event_times import NAME as DEVICE_TIMES
from profproto.v1 import capture_pb2 as pb

from bench.gpu import machine
from bench.gpu.end_to_end import WINDOW_NS, job
from bench.gpu.results import Check, Result
from tests.support.attached import Captures, sql
from tests.support.daemon import running_daemon

_QUESTIONS = {
    "categories": "select cat, count(*) from events group by cat order by cat",
    "timed": f"select count(*), sum(value) from events where name = '{DEVICE_TIMES}'",
    "counters": "select name, count(*), min(value), max(value) from events where cat = 'gpu_metric' group by name",
}


def run() -> Result:
    """All of them, whatever one of them does."""
    result = Result("options", machine.describe())
    for name, case in (("graphs_whole", graphs_whole), ("counters", counters), ("fallback", fallback)):
        try:
            result.data[name], checks = case()
        except (AssertionError, grpc.RpcError) as error:
            result.checks.append(Check(name, False, str(error)[-2000:]))
        else:
            result.checks += checks
    return result


def graphs_whole() -> tuple[dict[str, Any], list[Check]]:
    """Not followed, and said so: the job lives."""
    found = _recorded("sdk", "graph", {"PROFD_GPU_CUDA_GRAPHS": "whole"}, {})
    told = any("gpu.cuda_graphs" in line for line in found["said"])
    return found, [_stored("graphs_whole", found), Check("graphs_whole: said not to be followed", told)]


def counters() -> tuple[dict[str, Any], list[Check]]:
    """Metrics are not wanted, so there are no hardware counters either, and the trace says so."""
    found = _recorded("sdk", "gpu_bound", {"PROFD_GPU_PM_SAMPLING_US": "1000"}, {"no_gpu_metrics": True})
    told = any("no hardware counters" in line for line in found["said"])
    return found, [_stored("counters", found), Check("counters: said why not", told, str(found["said"]))]


def fallback() -> tuple[dict[str, Any], list[Check]]:
    """The job has used torch.profiler, which keeps CUPTI: operators are timed by CUDA events."""
    found = _recorded("sdk", "profiled", {}, {"gpu_fallback": True, "torch": "observer", "force": True})
    [[count, ns]] = found["timed"]
    said = f"{count:,} operators, {(ns or 0) / 1e6:.1f} ms"
    in_part = found["state"] in ("STATE_STORED", "STATE_PARTIAL")  # without kernels, and some operators' times
    lives = Check("fallback: stored, the job goes on", in_part and found["alive"], str(found))
    return found, [lives, Check("fallback: device times", bool(count and ns), said)]


def _recorded(way: str, loop: str, settings: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, Any]:
    with running_daemon(environ=settings) as daemon, job(daemon, way, loop) as process:
        [target] = Captures(daemon).record(process.pid, source=way, duration_ns=WINDOW_NS, **options).targets
        found: dict[str, Any] = {
            "state": pb.State.Name(target.state),
            "said": [target.message, *target.not_honoured, *target.warnings],
            "alive": process.poll() is None,
            "lost": {loss.reason: loss.count for loss in target.lost},
        }
        assert target.trace, str(found)
        found |= {name: sql(daemon, target.trace, question) for name, question in _QUESTIONS.items()}
    return found


def _stored(name: str, found: dict[str, Any]) -> Check:
    return Check(f"{name}: stored, the job goes on", found["state"] == "STATE_STORED" and found["alive"], str(found))
