"""Jobs that end or restart while they are recorded, or are another's: nothing is lost, and what is missing is said."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.integration.slurm.conftest import (
    NODES,
    PROFCTL,
    RANKS,
    SECONDS,
    answer_of,
    attached,
    homes,
    recorded,
    running_jobs,
    traced,
)
from tests.support import readable, slurm
from tests.support.long import long
from tests.support.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(slurm.missing()), reason=f"no Slurm here ({', '.join(slurm.missing())}): slurm-wlm, munge"),
]


def beside_slurm(cluster):
    """`--via` of the nodes without a step: as ssh would reach them after the job's end."""
    first = {node: cluster.node(node).first for node in NODES}
    where = " ".join(f"{node}) to={pid};;" for node, pid in first.items())
    enter = 'exec nsenter --target=$to --pid --mount --uts --net -- "$@"'
    return f"sh -c 'case $1 in {where} esac; shift; {enter}' sh {{host}}"


def ended_with(process):
    out, err = process.communicate(timeout=SECONDS)
    assert "Traceback" not in err, err
    return process.returncode, json.loads(out)


def assert_all_is_kept(cluster, profctl, fleet, job):
    """Both nodes have a trace of it, as whoever reaches them otherwise can see."""
    shown = answer_of(profctl("wait", fleet, "--hosts", "n[1-2]", "--via", beside_slurm(cluster), "--json"))
    assert traced(shown) == [("n1", 0, job), ("n2", 1, job)], shown


def test_a_job_that_is_cancelled(cluster, own_job, profctl, folder):
    with recorded(cluster, folder, own_job, "100s") as process:
        cluster.asked("scancel", own_job)
        code, answer = ended_with(process)
    # Which of the two is told depends on who is quicker: Slurm with the relay's step, or the node's daemon.
    assert (code, answer["state"]) in ((6, "partial"), (7, "lost")), answer
    lost = [host["message"] for host in answer["hosts"] if host["stand"] == "lost"]
    assert all(lost), answer
    assert_all_is_kept(cluster, profctl, answer["capture"], own_job)
    # AND Slurm's way is closed, which is said.
    done = profctl("show", answer["capture"], "--via", "slurm", "--job", own_job)
    assert (done.returncode, "Steps can join running jobs only" in done.stderr) == (3, True), done.stderr


@long
def test_a_job_that_is_out_of_time(cluster, own_job, profctl, folder):
    with recorded(cluster, folder, own_job, "200s") as process:
        cluster.asked("scontrol", "update", f"jobid={own_job}", "timelimit=1")
        code, answer = ended_with(process)
    assert code in (1, 6, 7), answer
    assert_all_is_kept(cluster, profctl, answer["capture"], own_job)


def test_a_step_that_is_cancelled_is_made_again(cluster, own_job, folder):
    """GIVEN a relay's step WHEN somebody cancels it THEN another one follows the same capture to its end."""
    with recorded(cluster, folder, own_job, "8s") as process:
        steps = cluster.asked("squeue", "--steps", "--noheader", "--format=%i", f"--jobs={own_job}").split()
        (ours,) = [step for step in steps if step.startswith(f"{own_job}.") and not step.endswith(".0")]
        cluster.asked("scancel", ours)
        code, answer = ended_with(process)
    assert (code, traced(answer)) == (0, [("n1", 0, own_job), ("n2", 1, own_job)]), answer


def test_a_job_that_is_requeued(cluster, profctl, folder, tmp_path):
    """GIVEN a batch job that is recorded WHEN it is put back into the queue THEN what was recorded is kept.

    AND its new processes are of a capture of their own.
    """
    script = tmp_path / "train.sh"
    words = " ".join(f"'{word}'" for word in RANKS)
    script.write_text(f"#!/bin/sh\nexec srun --overcommit -n2 --ntasks-per-node=1 {words}\n")
    asked = ("sbatch", "--parsable", "--requeue", "-N2", "-n2", "--nodelist=n1,n2", f"--output={tmp_path}/%j.out")
    job = cluster.asked(*asked, str(script))
    try:
        until(lambda: all(job in attached(cluster.node(node)) for node in NODES), "both ranks are attached")
        with recorded(cluster, folder, job, "100s") as process:
            cluster.asked("scontrol", "requeue", job)
            code, answer = ended_with(process)
        assert code in (1, 6, 7), answer
        assert_all_is_kept(cluster, profctl, answer["capture"], job)
        cluster.asked("scontrol", "update", f"jobid={job}", "starttime=now")
        until(lambda: job in running_jobs(cluster), "it runs again")
        until(lambda: all(job in attached(cluster.node(node)) for node in NODES), "both ranks are attached again")
        again = answer_of(profctl("start", "--via", "slurm", "--job", job, "--source", "sdk", "-d", "200ms", "--json"))
        assert traced(again) == [("n1", 0, job), ("n2", 1, job)], again
        assert again["capture"] != answer["capture"]
    finally:
        subprocess.run(["scancel", job], env=cluster.environ)
        until(lambda: job not in running_jobs(cluster), "the job has ended")


@pytest.mark.skipif(bool(readable.why_not()), reason=readable.why_not())
def test_another_s_job_is_refused_by_slurm(cluster, job):
    nobody = ("setpriv", f"--reuid={readable.NOBODY}", f"--regid={readable.NOBODY}", "--clear-groups")
    done = subprocess.run(
        readable.command(*nobody, *PROFCTL, "where", "--via", "slurm", "--job", job, "--json"),
        env={**cluster.environ, **homes(Path("/nowhere")), "HOME": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd="/",
    )
    answer = answer_of(done)
    assert done.returncode == 1
    assert {one["host"] for one in answer} == set(NODES)
    assert all("denied" in one["error"].lower() for one in answer), answer
