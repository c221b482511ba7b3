"""What Slurm's words mean; tests/integration/slurm has a real one."""

import pytest
from profclient.errors import NotFoundError, UnreachableError, UsageError
from profclient.fleet import slurm
from profclient.fleet.slurm import Job, answered, via


def test_a_task_of_an_array_is_its_raw_id():
    assert answered("4711_3", "4714|4711_3|RUNNING|node[001-002]\n") == Job("4714", "node[001-002]")


def test_several_tasks_are_named():
    text = "4714|4711_3|RUNNING|n1\n4715|4711_4|RUNNING|n2\n4711|4711_[5-9]|PENDING|\n"
    with pytest.raises(UsageError, match="4711_3, 4711_4"):
        answered("4711", text)
    assert answered("4711", text.splitlines()[0] + "\n" + text.splitlines()[2]) == Job("4714", "n1")


@pytest.mark.parametrize(("text", "why"), [("", "not in the queue"), ("7|7|PENDING|\n", "PENDING"), ("x|\n", "queue")])
def test_a_job_that_does_not_run(text, why):
    with pytest.raises(NotFoundError, match=why):
        answered("7", text)


@pytest.mark.parametrize("name", ["", "-w", "7;x", "7_", "7_[1-3]", "٣", "7+1", "9" * 11])
def test_what_is_no_id_is_not_asked_for(name):
    with pytest.raises(UsageError, match="no id"):
        slurm.job(name)


def test_a_machine_without_slurm(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnreachableError, match="squeue cannot be run"):
        slurm.job("7")
    (tmp_path / "squeue").write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1\n")
    (tmp_path / "squeue").chmod(0o755)
    with pytest.raises(UnreachableError, match="Unable to contact"):
        slurm.job("7")


def test_the_environment_of_the_shell_s_own_job_stays_out():
    assert via("7", ["PATH", "SLURM_CONF"]).startswith("srun --jobid 7 --overlap ")
    assert via("7", ["SLURM_NTASKS", "SRUN_DEBUG", "SLURM_CONF", "SLURM_X;y"]).startswith(
        "env -u SLURM_NTASKS -u SRUN_DEBUG srun --jobid 7 "
    )
    assert "{host}" in via("7", [])
