"""A job of two nodes, recorded from outside: `srun --overlap` carries the relays, as --via slurm has it."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.integration.slurm.test_slurm import PROFCTL, PROGRAM, SECONDS
from tests.support import slurm
from tests.support.daemon import start_daemon
from tests.support.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(slurm.missing()), reason=f"no Slurm here ({', '.join(slurm.missing())}): slurm-wlm, munge"),
]

NODES = ("n1", "n2")


@pytest.fixture(scope="module")
def cluster():
    with slurm.cluster_of(*NODES) as found:
        yield found


@pytest.fixture
def folder(cluster):
    """With a daemon for each node, since both are this machine."""
    folder = Path(tempfile.mkdtemp(prefix="pf-", dir="/tmp"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for node in NODES:
            (folder / node).mkdir()
            stack.callback(start_daemon(folder / node, environ={"PROFD_SDK_ARENA_BYTES": "24MiB"}).stop)
        yield folder


@pytest.fixture
def job(cluster, folder):
    """The id of one with a rank on each node, attached to the node's daemon."""
    rank = 'PROFD_ADDRESS=unix:$0/$SLURMD_NODENAME/profd.sock exec "$@"'
    task = ["sh", "-c", rank, str(folder), *PROFCTL, "run", "--", sys.executable, "-c", PROGRAM]
    with cluster.srun("-N2", "-n2", "--ntasks-per-node=1", *task, environ=os.environ) as srun, closing(srun.stdout):
        try:
            yield until(lambda: squeue(cluster, "%A"), "the job runs")
        finally:
            srun.terminate()
            srun.wait(SECONDS)


def squeue(cluster, words):
    asked = ["squeue", "--noheader", "--states=RUNNING", f"--format={words}"]
    return subprocess.run(asked, env=cluster.environ, capture_output=True, text=True, check=True).stdout.strip()


def attached(folder):
    """Ranks that each node's daemon knows as attached."""
    found = []
    for node in NODES:
        environ = {**os.environ, "PROFD_ADDRESS": f"unix:{folder}/{node}/profd.sock"}
        done = subprocess.run([*PROFCTL, "ps", "--json"], env=environ, capture_output=True, text=True, timeout=SECONDS)
        found += [target["rank"] for target in json.loads(done.stdout or "[]") if "sdk" in target["sources"]]
    return sorted(found) == [0, 1]


@pytest.fixture
def python(folder):
    """On the nodes: finds the daemon of the node that it runs on."""
    script = folder / "python"
    address = f"PROFD_ADDRESS=unix:{folder}/$SLURMD_NODENAME/profd.sock"
    script.write_text(f'#!/bin/sh\n{address} exec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return script


def on_login_node(cluster, folder, *arguments, **environ):
    return subprocess.run(
        [*PROFCTL, *arguments],
        env={**cluster.environ, "XDG_STATE_HOME": str(folder), **environ},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def test_every_rank_from_the_login_node(cluster, folder, job, python, tmp_path):
    until(lambda: attached(folder), "both ranks are attached")
    slurm_way = ("--via", "slurm", "--remote-python", str(python), "--job", job)
    done = on_login_node(
        *(cluster, folder, "start", *slurm_way, "--source", "sdk", "--duration", "300ms", "--json"),
        SLURM_NTASKS="7",  # as in the shell of an allocation: no business of our steps
        SLURM_NNODES="5",
    )
    answer = json.loads(done.stdout or "null")
    assert answer is not None, done.stderr
    traced = [
        (host["host"], target["rank"], target["job"])
        for host in answer["hosts"]
        for target in (host["capture"] or {"targets": []})["targets"]
        if target["trace"]
    ]
    # Each daemon sees the other node's rank, too, since both nodes are this machine, and could not record that.
    assert traced == [("n1", 0, job), ("n2", 1, job)], answer
    # The job runs on, so that steps can join it: what is there can be brought here.
    done = on_login_node(cluster, folder, "collect", answer["capture"], "--to", str(tmp_path))
    assert done.returncode == 6, done.stderr
    assert {path.parent.parent.parent.name for path in tmp_path.rglob("meta.json")} == {"host=n1", "host=n2"}
    done = on_login_node(cluster, folder, "where", *slurm_way, "--rank", "0-1")
    assert "n2 rank 1 pid" in done.stdout, done.stderr


def test_jobs_that_cannot_be_joined(cluster, folder):
    for job, code, why in (("99999999", 3, "does not run"), ("4711;x", 2, "no id of a Slurm job")):
        done = on_login_node(cluster, folder, "start", "--via", "slurm", "--job", job, "--duration", "1s")
        assert (done.returncode, why in done.stderr) == (code, True), done.stderr
    done = on_login_node(cluster, folder, "start", "--via", "slurm", "--rank", "0", "--duration", "1s")
    assert (done.returncode, "needs one --job" in done.stderr) == (2, True), done.stderr
