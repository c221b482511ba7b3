"""Jobs of several nodes, recorded from outside: one step of `srun --overlap` carries the relays (--via slurm)."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from profproto.v1 import capture_pb2 as pb

from tests.integration.slurm.test_slurm import PROFCTL, PROGRAM, SECONDS
from tests.support import slurm
from tests.support.attached import Captures
from tests.support.daemon import start_daemon
from tests.support.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(slurm.missing()), reason=f"no Slurm here ({', '.join(slurm.missing())}): slurm-wlm, munge"),
]

NODES = ("n1", "n2")
SLEEPS = (sys.executable, "-c", "import time; print('here', flush=True); time.sleep(6000)")


@pytest.fixture(scope="module")
def cluster():
    with slurm.cluster_of(*NODES, "n3") as found:
        yield found


@pytest.fixture(scope="module")
def daemons():
    """One for each node but n3, since all are this machine."""
    folder = Path(tempfile.mkdtemp(prefix="pf-", dir="/tmp"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        found = {}
        for node in NODES:
            (folder / node).mkdir()
            found[node] = start_daemon(folder / node, environ={"PROFD_SDK_ARENA_BYTES": "24MiB"})
            stack.callback(found[node].stop)
        yield found


@pytest.fixture(scope="module")
def folder(daemons):
    return daemons["n1"].socket.parent.parent


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
def job(cluster, folder):
    """The id of one with a rank on each node, attached to the node's daemon."""
    rank = 'PROFD_ADDRESS=unix:$0/$SLURMD_NODENAME/profd.sock exec "$@"'
    task = ["sh", "-c", rank, str(folder), *PROFCTL, "run", "--", sys.executable, "-c", PROGRAM]
    with running(cluster, "-N2", "-n2", "--ntasks-per-node=1", "--nodelist=n1,n2", *task) as job:
        until(lambda: attached(folder), "both ranks are attached")
        yield job


def attached(folder):
    """Ranks that each node's daemon knows as attached."""
    found = []
    for node in NODES:
        environ = {**os.environ, "PROFD_ADDRESS": f"unix:{folder}/{node}/profd.sock"}
        done = subprocess.run([*PROFCTL, "ps", "--json"], env=environ, capture_output=True, text=True, timeout=SECONDS)
        found += [target["rank"] for target in json.loads(done.stdout or "[]") if "sdk" in target["sources"]]
    return sorted(found) == [0, 1]


@pytest.fixture(scope="module")
def python(folder):
    """On the nodes: finds the daemon of the node that it runs on."""
    script = folder / "python"
    address = f"PROFD_ADDRESS=unix:{folder}/$SLURMD_NODENAME/profd.sock"
    script.write_text(f'#!/bin/sh\n{address} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return script


@pytest.fixture
def profctl(cluster, folder, python):
    """On the login node."""

    def run(*arguments, **environ):
        if "--via" in arguments:
            arguments += ("--remote-python", str(python))
        return subprocess.run(
            [*PROFCTL, *arguments],
            env={**cluster.environ, "XDG_STATE_HOME": str(folder), "XDG_CACHE_HOME": str(folder), **environ},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )

    return run


def answer_of(done):
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def traced(answer):
    return [
        (host["host"], target["rank"], target["job"])
        for host in answer["hosts"]
        for target in (host["capture"] or {"targets": []})["targets"]
        if target["trace"]
    ]


def test_every_rank_from_the_login_node(cluster, job, profctl, tmp_path):
    steps = cluster.asked_of_controller("JOB_STEP_CREATE")
    of_shell = {"SLURM_NTASKS": "7", "SLURM_NNODES": "5"}  # as in an allocation's shell: no business of our steps
    way = ("--via", "slurm", "--job", job)
    done = profctl("start", *way, "--source", "sdk", "--duration", "300ms", "--json", **of_shell)
    answer = answer_of(done)
    # Each daemon sees the other node's rank, too, since both nodes are this machine, and could not record that.
    assert traced(answer) == [("n1", 0, job), ("n2", 1, job)], answer
    assert cluster.asked_of_controller("JOB_STEP_CREATE") - steps == 1
    # The job runs on, so that steps can join it: what is there can be brought here.
    done = profctl("collect", answer["capture"], "--to", str(tmp_path), **of_shell)
    assert done.returncode == 6, done.stderr
    assert {path.parent.parent.parent.name for path in tmp_path.rglob("meta.json")} == {"host=n1", "host=n2"}
    done = profctl("where", *way, "--rank", "0-1")
    assert "n2 rank 1 pid" in done.stdout, done.stderr
    assert cluster.asked_of_controller("JOB_STEP_CREATE") - steps == 3


def test_a_relay_that_is_killed_is_started_again(cluster, daemons, job, folder, python):
    asked = ("start", "--via", "slurm", "--job", job, "--remote-python", str(python), "--source", "sdk")
    with subprocess.Popen(
        [*PROFCTL, *asked, "--duration", "4s", "--json"],
        env={**cluster.environ, "XDG_STATE_HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until(lambda: all(map(records, daemons.values())), "both record")
        (one, *_) = relays_of(folder, "n2")
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
    # Beside the other job, as each daemon's ranks are those of this machine.
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


def relays_of(folder, node):
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            ours = b"profclient.relay" in (entry / "cmdline").read_bytes()
            ours = ours and f"unix:{folder}/{node}/".encode() in (entry / "environ").read_bytes()
        except OSError:
            continue
        found += [int(entry.name)] if ours else []
    return found


def records(daemon):
    found = Captures(daemon).call("ListCaptures", pb.ListCapturesRequest(limit=1)).captures
    return bool(found) and any(target.state == pb.STATE_RECORDING for target in found[0].targets)
