"""Jobs of several nodes, recorded from outside: one step of `srun --overlap` carries the relays (--via slurm)."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from tests.integration.slurm.test_slurm import PROFCTL, PROGRAM, SECONDS
from tests.support import slurm, slurm_nodes
from tests.support.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(slurm.missing()), reason=f"no Slurm here ({', '.join(slurm.missing())}): slurm-wlm, munge"),
]

NODES = ("n1", "n2")
SLEEPS = (sys.executable, "-c", "import time; print('here', flush=True); time.sleep(6000)")


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory(prefix="pf-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def cluster(folder):
    """Three nodes that see nothing of each other; a profd on two of them."""
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


def running_jobs(cluster):
    return cluster.asked("squeue", "--noheader", "--states=RUNNING", "--format=%A").split()


@pytest.fixture(scope="module")
def job(cluster):
    """The id of one with a rank on each node, attached to the node's daemon."""
    task = (*PROFCTL, "run", "--", sys.executable, "-c", PROGRAM)
    with running(cluster, "-N2", "-n2", "--ntasks-per-node=1", "--nodelist=n1,n2", *task) as job:
        until(lambda: all(attached(cluster.node(node)) for node in NODES), "both ranks are attached")
        yield job


def attached(node):
    """Ranks that the node's daemon knows as attached."""
    return [target["rank"] for target in node.answer("ps") if "sdk" in target["sources"]]


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


def homes(folder):
    return {name: str(folder / "xdg") for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME")}


def answer_of(done):
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def traced(answer):
    return [
        (host["host"], target["rank"], target["job"])
        for host in answer["hosts"]
        for target in host["capture"]["targets"]
        if target["trace"]
    ]


def test_every_rank_from_the_login_node(cluster, job, profctl, tmp_path):
    steps, partitions = (cluster.asked_of_controller(kind) for kind in ("JOB_STEP_CREATE", "PARTITION_INFO"))
    of_shell = {"SLURM_NTASKS": "7", "SLURM_NNODES": "5"}  # as in an allocation's shell: no business of our steps
    way = ("--via", "slurm", "--job", job)
    done = profctl("start", *way, "--source", "sdk", "--duration", "300ms", "--json", **of_shell)
    answer = answer_of(done)
    assert (done.returncode, answer["state"]) == (0, "stored"), answer
    assert traced(answer) == [("n1", 0, job), ("n2", 1, job)], answer
    assert cluster.asked_of_controller("JOB_STEP_CREATE") - steps == 1
    assert cluster.asked_of_controller("PARTITION_INFO") == partitions  # as squeue would ask
    # The job runs on, so that steps can join it: what is there can be brought here.
    done = profctl("collect", answer["capture"], "--to", str(tmp_path), **of_shell)
    assert done.returncode == 0, done.stderr
    assert {path.parent.parent.parent.name for path in tmp_path.rglob("meta.json")} == {"host=n1", "host=n2"}
    done = profctl("where", *way, "--rank", "0-1")
    assert "n2 rank 1 pid" in done.stdout, done.stderr
    assert cluster.asked_of_controller("JOB_STEP_CREATE") - steps == 3


def test_a_relay_that_is_killed_is_started_again(cluster, job, folder):
    asked = ("start", "--via", "slurm", "--job", job, "--source", "sdk")
    with subprocess.Popen(
        [*PROFCTL, *asked, "--duration", "8s", "--json"],
        env={**cluster.environ, **homes(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until(lambda: all(records(cluster.node(node)) for node in NODES), "both record")
        (one, *_) = relays_of(cluster.node("n2"))
        os.kill(one, signal.SIGKILL)
        out, err = process.communicate(timeout=SECONDS)
    assert traced(json.loads(out)) == [("n1", 0, job), ("n2", 1, job)], err


def test_jobs_that_cannot_be_joined(profctl):
    for name, code, why in (("99999999", 3, "does not run"), ("4711;x", 2, "no id of a Slurm job")):
        done = profctl("start", "--via", "slurm", "--job", name, "--duration", "1s")
        assert (done.returncode, why in done.stderr) == (code, True), done.stderr
    done = profctl("start", "--via", "slurm", "--rank", "0", "--duration", "1s")
    assert (done.returncode, "needs one --job" in done.stderr) == (2, True), done.stderr


def test_components_of_a_heterogeneous_job(cluster, job, profctl):
    with running(cluster, "-N1", "-w", "n1", *SLEEPS, ":", "-N1", "-w", "n2", *SLEEPS, tasks=2) as leader:
        answer = answer_of(profctl("where", "--via", "slurm", "--job", leader, "--json"))
        assert sorted({one["host"] for one in answer}) == ["n1", "n2"]
        assert not any(one["error"] for one in answer), answer
        answer = answer_of(profctl("where", "--via", "slurm", "--job", f"{leader}+1", "--json"))
        assert {one["host"] for one in answer} == {"n2"}


def test_a_node_that_does_not_answer_is_left_out(cluster, job, profctl):
    """GIVEN a job that lives on without a node WHEN its slurmd is gone THEN the others are asked without it."""
    with running(cluster, "--no-kill", "-N3", "-n3", *SLEEPS, tasks=3) as lame:
        cluster.lose("n3")
        answer = answer_of(profctl("where", "--via", "slurm", "--job", lame, "--json"))
        assert {one["host"]: one["error"] for one in answer} == {
            "n1": None,
            "n2": None,
            "n3": "no step could begin there: Communication connection failure",
        }
        cluster.asked("scontrol", "update", "nodename=n3", "state=down", "reason=lost")
        answer = answer_of(profctl("where", "--via", "slurm", "--hosts", "n[2-3]", "--job", lame, "--json"))
        assert {one["host"]: "no such node" in (one["error"] or "") for one in answer} == {"n2": False, "n3": True}


def relays_of(node):
    return [pid for pid in node.pids() if b"profclient.relay" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def records(node):
    return any(capture["state"] == "recording" for capture in node.answer("captures"))
