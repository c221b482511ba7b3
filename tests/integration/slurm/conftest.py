"""Three nodes of a real Slurm that see nothing of each other, and jobs that are recorded from the login node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from profd.model.capture import State

from tests.integration.slurm.test_slurm import PROFCTL, PROGRAM, SECONDS
from tests.support import slurm, slurm_nodes
from tests.support.fleet_answers import with_traces
from tests.support.waiting import until

NODES = ("n1", "n2")
RANKS = (*PROFCTL, "run", "--", sys.executable, "-c", PROGRAM)


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def cluster(folder):
    """Three nodes; a profd on two of them."""
    if why := slurm_nodes.why_not():
        pytest.skip(why)
    with slurm.cluster_of(*NODES, "n3", apart=True) as found, ExitStack() as stack:
        for node in NODES:
            stack.enter_context(found.node(node).profd(folder, PROFD_SDK_ARENA_BYTES="24MiB"))
        yield found


@contextmanager
def running(cluster, *arguments, tasks=0):
    """A job of srun's, of which so many tasks have begun that print a line; its raw id."""
    before = set(running_jobs(cluster))
    with cluster.srun(*arguments, environ=os.environ) as srun, closing(srun.stdout):
        try:
            until(lambda: set(running_jobs(cluster)) - before, "the job runs")
            assert all(srun.stdout.readline() for _ in range(tasks))
            yield min(set(running_jobs(cluster)) - before)
        finally:
            for job in set(running_jobs(cluster)) - before:
                subprocess.run(["scancel", job], env=cluster.environ)  # a component cannot be ended, its job is
            srun.kill()  # it would wait for nodes that are gone
            srun.wait(SECONDS)
            until(lambda: not set(running_jobs(cluster)) - before, "the job has ended")


@contextmanager
def two_ranks(cluster):
    """A job with a rank on each node, attached to the node's daemon; its id."""
    with running(cluster, "-N2", "-n2", "--ntasks-per-node=1", "--nodelist=n1,n2", *RANKS) as job:
        until(lambda: all(job in attached(cluster.node(node)) for node in NODES), "both ranks are attached")
        yield job


def running_jobs(cluster):
    return cluster.asked("squeue", "--noheader", "--states=RUNNING", "--format=%A").split()


def attached(node):
    """Jobs of the ranks that the node's daemon knows as attached."""
    return [target["job"] for target in node.answer("ps") if "sdk" in target["sources"]]


@pytest.fixture(scope="module")
def job(cluster):
    with two_ranks(cluster) as found:
        yield found


@pytest.fixture
def own_job(cluster):
    """One that ends with the test, if not before."""
    with two_ranks(cluster) as found:
        yield found


@pytest.fixture
def profctl(cluster, folder):
    """On the login node."""

    def run(*arguments, **environ):
        return subprocess.run(
            [*PROFCTL, *arguments],
            env={**cluster.environ, **homes(folder), **environ},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    return run


@contextmanager
def recorded(cluster, folder, job, duration):
    """A `profctl start` on the login node, once both ranks are recorded by it."""
    asked = ("start", "--via", "slurm", "--job", job, "--source", "sdk", "--duration", duration, "--json")
    with subprocess.Popen(
        [*PROFCTL, *asked],
        env={**cluster.environ, **homes(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            until(lambda: all(records(folder / node) for node in NODES), "both record")
            yield process
        finally:
            process.kill()


def records(state):
    """Whether a node's daemon does, by its files: on a busy host `profctl` takes as long as what is recorded lasts."""
    found = [json.loads(file.read_text()) for file in state.glob("records/captures/*.json")]
    return any(target["state"] == State.RECORDING for capture in found for target in capture["targets"])


def homes(folder):
    return {name: str(folder / "xdg") for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME")}


def answer_of(done):
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def traced(answer):
    return [(host, target["rank"], target["job"]) for host, target in with_traces(answer)]


def relays_of(node):
    return [pid for pid in node.pids() if b"profclient.relay" in command_line(pid)]


def command_line(pid):
    """Nothing of one that has ended by now, before its file is opened or while it is read."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
