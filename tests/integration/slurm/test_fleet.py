"""Jobs of several nodes, recorded from outside: one step of `srun --overlap` carries the relays (--via slurm)."""

import json
import os
import signal
import sys

import pytest

from tests.integration.slurm.conftest import SECONDS, answer_of, recorded, relays_of, running, traced
from tests.support import slurm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(slurm.missing()), reason=f"no Slurm here ({', '.join(slurm.missing())}): slurm-wlm, munge"),
]

SLEEPS = (sys.executable, "-c", "import time; print('here', flush=True); time.sleep(6000)")


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


def test_the_job_s_id_is_enough(cluster, job, profctl, tmp_path):
    """GIVEN a job WHEN no host is named THEN all of its nodes are meant, from the login node and from within."""
    asked = ("start", "--job", job, "--source", "sdk", "--duration", "300ms", "--all")
    done = profctl(*asked, "--to", str(tmp_path / "traces"), "--json")
    answer = answer_of(done)
    assert (done.returncode, answer["state"]) == (0, "stored"), answer
    assert traced(answer) == [("n1", 0, job), ("n2", 1, job)], answer
    assert [one["rank"] for one in answer["collected"]["traces"]] == [0, 1]
    asked = profctl("--store", str(tmp_path / "traces"), "top", answer["capture"], "--by", "rank", "--json")
    assert {row["rank"] for row in answer_of(asked)["rows"]} == {0, 1}
    within = cluster.node("n1").answer("where", "--job", job)
    assert {one["host"] for one in within} == {"n1", "n2"}
    (alone,) = cluster.node("n1").answer("where", "--job", job, "--here")
    assert alone["rank"] == 0


def test_a_job_that_ends_before_its_window_is_told(cluster, own_job, profctl):
    cluster.asked("scontrol", "update", f"jobid={own_job}", "timelimit=1")
    done = profctl("start", "--job", own_job, "--rank", "7", "--duration", "2m")
    assert "by its time limit the job has" in done.stderr
    assert "the window takes 120.0 s" in done.stderr


def test_a_relay_that_is_killed_is_started_again(cluster, job, folder):
    with recorded(cluster, folder, job, "8s") as process:
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
