"""A job on two real Slurm nodes: Enter until its ranks are armed, beyond a bare step, and stacks of 64 processes.

`created_ns` is when a host's daemon has begun to arm: the nodes share this machine's clock. Then they wait for the
moment at which all begin. As root, on a machine with Slurm; elsewhere the case says what is missing.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.cases.where import BAR_SECONDS as WHERE_BAR_SECONDS
from bench.cases.where import PROCESSES, REFILL_SECONDS
from bench.measure import Row
from tests.support import slurm, slurm_nodes
from tests.support.waiting import until

ROUNDS = 9
BAR_SECONDS = 0.5
LOOKS = 3
NODES = ("n1", "n2")
PROFCTL = (sys.executable, "-W", "ignore", "-c", "from profclient.cli import main; main()")
STEP = ("srun", "--overlap", "-N2", "-n2", "--mem=0", "--cpu-bind=none")
TASKS = ("-N2", "-n2", "--ntasks-per-node=1", f"--nodelist={','.join(NODES)}")
PROGRAM = """
import time, profclient
while True:
    with profclient.record_function("step"):
        time.sleep(0.002)
"""
MANY = f"""
import subprocess, sys, time
for _ in range({PROCESSES // 2 - 1}):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
time.sleep(3600)
"""


def rows(events: int) -> Iterator[Row]:
    """The row of this case."""
    del events
    what = "Enter to both ranks armed, two nodes of Slurm"
    if why := ", ".join(slurm.missing()) or slurm_nodes.why_not():
        yield Row("slurm", what, f"not measured: {why}")
        return
    with tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp") as name, slurm.cluster_of(*NODES, apart=True) as cluster:
        folder = Path(name)
        environ = {**cluster.environ, **{of: str(folder / "xdg") for of in ("XDG_STATE_HOME", "XDG_CACHE_HOME")}}
        with ExitStack() as stack:
            for node in NODES:
                stack.enter_context(cluster.node(node).profd(folder, PROFD_SDK_ARENA_BYTES="24MiB"))
            with _job(cluster, *PROFCTL, "run", "--", sys.executable, "-c", PROGRAM) as job:
                until(lambda: all(_attached(cluster.node(node)) for node in NODES), "both ranks are attached")
                pairs = [(_bare(job, environ), _armed(job, environ)) for _ in range(ROUNDS)]
            with _job(cluster, sys.executable, "-c", MANY) as job:
                until(lambda: sum(_of_job(cluster.node(node), job) for node in NODES) >= PROCESSES, "all have begun")
                looks = [_looked(job, environ) for _ in range(LOOKS)]
    beyond = sorted(armed - bare for bare, armed in pairs)
    middle = statistics.median(beyond)
    yield Row(
        "slurm",
        f"{what}, beyond a bare step, {ROUNDS} pairs",
        f"{middle:.2f} s ({beyond[0]:.2f} to {beyond[-1]:.2f})",
        floor=f"{statistics.median(bare for bare, _ in pairs):.2f} s",
        bar=f"<= {BAR_SECONDS} s",
        met=middle <= BAR_SECONDS,
    )
    seconds = statistics.median(looks)
    yield Row(
        "slurm",
        f"`profctl where --job` of {PROCESSES} processes on two nodes",
        f"{seconds:.2f} s",
        bar=f"<= {WHERE_BAR_SECONDS} s",
        met=seconds <= WHERE_BAR_SECONDS,
    )


@contextmanager
def _job(cluster: slurm.Cluster, *program: str) -> Iterator[str]:
    """A job of srun's with a task on each node; its id."""
    srun = cluster.srun(*TASKS, *program, environ=os.environ)
    try:
        (job,) = until(
            lambda: cluster.asked("squeue", "--noheader", "--states=RUNNING", "--format=%A").split(), "a job"
        )
        yield job
    finally:
        for _ in range(2):  # the second one within a second ends it at once
            srun.send_signal(signal.SIGINT)
        srun.kill()
        srun.communicate()
        until(lambda: not cluster.asked("squeue", "--noheader", "--format=%A").split(), "the job has gone")


def _attached(node: slurm_nodes.Node) -> bool:
    return any("sdk" in target["sources"] for target in node.answer("ps"))


def _of_job(node: slurm_nodes.Node, job: str) -> int:
    return sum(target["job"] == job for target in node.answer("ps"))


def _looked(job: str, environ: dict[str, str]) -> float:
    """Seconds of the stacks of all processes of the job."""
    time.sleep(REFILL_SECONDS)
    began = time.monotonic()
    done = subprocess.run(
        [*PROFCTL, "where", "--via", "slurm", "--job", job], env=environ, capture_output=True, text=True, check=True
    )
    took = time.monotonic() - began
    if sum(line.startswith(NODES) for line in done.stdout.splitlines()) < PROCESSES:
        raise RuntimeError(done.stdout[:2000])
    return took


def _bare(job: str, environ: dict[str, str]) -> float:
    """Seconds of a step on both nodes that does nothing."""
    began = time.monotonic()
    subprocess.run([*STEP, "--jobid", job, "true"], env=environ, check=True, capture_output=True)
    return time.monotonic() - began


def _armed(job: str, environ: dict[str, str]) -> float:
    """Seconds until the last host's daemon armed its rank."""
    began_ns = time.time_ns()
    words = ("start", "--via", "slurm", "--job", job, "--source", "sdk", "--duration", "300ms", "--json")
    done = subprocess.run([*PROFCTL, *words], env=environ, capture_output=True, text=True, check=False)
    answer: dict[str, Any] = json.loads(done.stdout)
    if answer["state"] != "stored":
        raise RuntimeError(done.stdout)
    return (max(host["capture"]["created_ns"] for host in answer["hosts"]) - began_ns) / 1e9
