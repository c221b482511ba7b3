"""A job of a real Slurm: its tasks are found by the job's id, have their ranks, and are recorded together."""

import json
import subprocess
import sys
from contextlib import closing, contextmanager

import pytest

from tests.support import slurm
from tests.support.daemon import running_daemon
from tests.support.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(slurm.missing()), reason=f"no Slurm here ({', '.join(slurm.missing())}): slurm-wlm, munge"),
]

PROFCTL = (sys.executable, "-W", "ignore", "-c", "from profclient.cli import main; main()")
RANKS = 2
SECONDS = 120
PROGRAM = """
import os, time, profclient
while True:
    with profclient.record_function("step", rank=int(os.environ["SLURM_PROCID"])):
        time.sleep(0.002)
"""


@contextmanager
def job(cluster, daemon):
    """Tasks under `profctl run`, ended with srun itself."""
    task = [*PROFCTL, "run", "--", sys.executable, "-c", PROGRAM]
    with cluster.srun(f"-n{RANKS}", *task, environ=daemon.environ) as srun, closing(srun.stdout):
        try:
            yield srun
        finally:
            srun.terminate()
            srun.wait(SECONDS)


@pytest.fixture(scope="module")
def cluster():
    with slurm.one_node_cluster() as found:
        yield found


@pytest.fixture
def daemon():
    with running_daemon(environ={"PROFD_SDK_ARENA_BYTES": "24MiB"}) as found:
        yield found


def profctl(daemon, *arguments):
    done = subprocess.run(
        [*PROFCTL, *arguments, "--json"], env=daemon.environ, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def tasks(daemon):
    """What `profctl ps` shows of the job's tasks, once all are attached."""
    _, shown, _ = profctl(daemon, "ps")
    return [process for process in shown if process["job"] and process["sources"][:1] == ["sdk"]]


def test_a_job_is_recorded_by_its_id(cluster, daemon):
    with job(cluster, daemon):
        until(lambda: len(tasks(daemon)) == RANKS, "the job's tasks are attached")
        shown = tasks(daemon)
        assert sorted(process["rank"] for process in shown) == list(range(RANKS))
        (number,) = {process["job"] for process in shown}

        code, capture, err = profctl(daemon, "start", "--job", number, "--duration", "300ms")
        assert code == 0, err
        assert {target["pid"] for target in capture["targets"]} == {process["pid"] for process in shown}
        for target in capture["targets"]:
            (rank,) = [process["rank"] for process in shown if process["pid"] == target["pid"]]
            assert (target["state"], target["lost"]) == ("stored", []), target
            question = "select distinct number from args where key = 'rank'"
            _, found, _ = profctl(daemon, "sql", target["trace"], question)
            assert found["rows"] == [[rank]]


def test_one_rank_of_a_job(cluster, daemon):
    with job(cluster, daemon):
        until(lambda: len(tasks(daemon)) == RANKS, "the job's tasks are attached")
        (one,) = [process for process in tasks(daemon) if process["rank"] == 1]
        code, capture, err = profctl(daemon, "start", "--job", one["job"], "--rank", "1", "--duration", "200ms")
        assert code == 0, err
        assert [target["pid"] for target in capture["targets"]] == [one["pid"]]
