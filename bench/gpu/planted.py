"""(i) Jobs with planted troubles (bench/gpu/troubles.py), and what profctl says of each; at most 200 s.

PROFD_BENCH_EXPORTS names a folder for their traces as bundles: 16 MiB each and 32 MiB in all at most.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import grpc
from profproto.v1 import capture_pb2 as pb

from bench.gpu import device, machine
from bench.gpu.end_to_end import PROFCTL, job
from bench.gpu.results import Check, Result
from tests.support.attached import Captures
from tests.support.daemon import RunningDaemon, running_daemon

SECONDS = device.of(200, rehearsed=900)
CASE_SECONDS = 30.0  # none begins with less left
WINDOW_NS = device.of(2_500_000_000, rehearsed=1_000_000_000)
EXPECTED = {  # job -> the finding that must come first; none: there must be none. Most telling first
    "healthy": "",
    "loads": "data-loading",
    "reads": "synchronisation",
    "copies": "exposed-copies",
    "launches": "small-kernels",
    "checkpoints": "slow-steps",
    "empties": "allocator",
    "healthy_graph": "",
}
_OF_THE_HOST = frozenset(("cpu-contention",))  # others' work beside ours
_EXPORTED = ("healthy", "loads", "reads", "copies", "launches", "checkpoints", "empties", "healthy_graph")
_FILE_MOST, _ALL_MOST = 16 << 20, 32 << 20


def run() -> Result:
    """A daemon of our own, and the jobs one after the other."""
    result = Result("planted", machine.describe())
    deadline = time.monotonic() + SECONDS
    with running_daemon() as daemon:
        for case, expected in EXPECTED.items():
            if time.monotonic() > deadline - CASE_SECONDS:
                result.checks.append(Check(case, None, "no time was left"))
                continue
            try:
                found = result.data[case] = _asked(daemon, case)
            except (AssertionError, grpc.RpcError, subprocess.TimeoutExpired, ValueError) as error:
                check = Check(case, False, str(error)[-2000:])
            else:
                check = judge(case, expected, found)
            result.checks.append(check)
            print(f"planted: {check.passed} {case}: {check.detail}", flush=True)
    return result


def judge(case: str, expected: str, found: dict[str, Any]) -> Check:
    """Whether the first finding is the planted one; of a healthy job, whether there is none."""
    ids = [one for one in found["ids"] if one not in _OF_THE_HOST]
    passed = ids[:1] == ([expected] if expected else [])
    took = ", ".join(f"{name} {answer['seconds']:.2f} s" for name, answer in found["answers"].items())
    return Check(case, passed, f"expected {expected or 'none'}, found {found['ids']} ({took})")


def _asked(daemon: RunningDaemon, case: str) -> dict[str, Any]:
    begin = time.monotonic()
    with job(daemon, "sdk", case) as process:
        captures = Captures(daemon)
        time.sleep(0.5)  # past its warm-up
        [target] = captures.record(process.pid, source="sdk", duration_ns=WINDOW_NS).targets
    told = [target.message, *target.not_honoured, *target.warnings]
    assert target.trace, f"{pb.State.Name(target.state)}: {told}"
    answers = {name: _answer(daemon, name, target.trace, *more) for name, more in _QUESTIONS.items()}
    found = answers["explain"]["answer"]
    return {
        "ids": [one["id"] for one in found["findings"]] if isinstance(found, dict) else [],
        "sentences": [one["sentence"] for one in found["findings"]] if isinstance(found, dict) else [],
        "told": told,
        "lost": {loss.reason: loss.count for loss in target.lost},
        "answers": answers,
        "exported_bytes": _export(daemon, case, target.trace),
        "seconds": round(time.monotonic() - begin, 2),
    }


_QUESTIONS = {"explain": (), "critical": ("--limit", "25"), "gpu": (), "show": ()}


def _answer(daemon: RunningDaemon, question: str, trace: str, *more: str) -> dict[str, Any]:
    """What profctl prints, and how long that took with its start."""
    begin = time.perf_counter()
    done = _profctl(daemon, question, trace, *more, "--json")
    seconds = round(time.perf_counter() - begin, 3)
    answer = json.loads(done.stdout) if done.returncode == 0 else f"exit {done.returncode}: {done.stderr[-500:]}"
    return {"seconds": seconds, "answer": answer}


def _export(daemon: RunningDaemon, case: str, trace: str) -> int:
    """Bytes of its bundle in PROFD_BENCH_EXPORTS; 0: there is none."""
    if not (folder := os.environ.get("PROFD_BENCH_EXPORTS")) or case not in _EXPORTED:
        return 0
    Path(folder).mkdir(parents=True, exist_ok=True)
    path = Path(folder) / f"{case}.bundle"
    _profctl(daemon, "export", trace, "-f", "bundle", "-o", str(path))
    size = path.stat().st_size if path.exists() else 0
    in_all = sum(file.stat().st_size for file in Path(folder).glob("*.bundle"))
    if size > _FILE_MOST or in_all > _ALL_MOST:
        path.unlink()
        print(f"planted: the bundle of {case} has {size:,} bytes and is not kept", flush=True)
        return 0
    return size


def _profctl(daemon: RunningDaemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROFCTL, *arguments], env=daemon.environ, capture_output=True, text=True, timeout=60)
