"""Whom `--job` alone means: the job's processes wherever Slurm runs it, or those of this host."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from profclient.cli.fleet_options import way
from profclient.errors import UsageError
from profclient.fleet import slurm

RECORD = """JobId=4714 ArrayJobId=4711 ArrayTaskId=3 JobName=train
   JobState=RUNNING Reason=None Dependency=(null)
   RunTime=00:00:20 TimeLimit={limit} TimeMin=N/A
   NodeList={nodes}
"""
HERE = os.uname().nodename.partition(".")[0]


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Slurm's commands are these scripts; each notes that it was asked."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)

    def says(record: str, squeue: str = "exit 1") -> Path:
        (tmp_path / "record").write_text(record)
        for name, script in (("scontrol", f"cat {tmp_path}/record"), ("squeue", squeue)):
            (tmp_path / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/asked\n{script}\n")
            (tmp_path / name).chmod(0o755)
        return tmp_path / "asked"

    return says


def values(**given: Any) -> dict[str, Any]:
    nothing = {"hosts": (), "via": None, "remote_python": None, "fanout": None, "here": False, "jobs": ("4711_3",)}
    return {**nothing, "pids": (), **given}


def test_a_job_of_slurm_s_is_meant_wherever_it_runs(controller, capsys):
    controller(RECORD.format(limit="1-00:01:00", nodes="node[001-002]"))
    asked = values()
    found = way(asked)
    assert found is not None
    assert (found.hosts, found.shared, asked["jobs"]) == (("node001", "node002"), True, ("4714",))
    assert found.left_s == 24 * 3600 + 40
    assert "--here stays on this host" in capsys.readouterr().err


@pytest.mark.parametrize("limit", ["UNLIMITED", "Partition_Limit", "x"])
def test_a_job_without_a_limit_has_time(controller, limit):
    controller(RECORD.format(limit=limit, nodes="node001"))
    found = way(values())
    assert found is not None
    assert found.left_s is None


def test_a_job_that_runs_here_alone_is_this_host_s_daemon_s(controller):
    asked = values()
    controller(RECORD.format(limit="UNLIMITED", nodes=HERE))
    assert way(asked) is None
    assert asked["jobs"] == ("4714",)


@pytest.mark.parametrize(
    "given",
    [{"here": True}, {"jobs": ("123.server",)}, {"jobs": ("1", "2")}, {"jobs": ()}, {"pids": (7,)}],
    ids=["here", "of PBS", "two", "none", "a pid"],
)
def test_slurm_is_not_asked_where_it_is_no_question(controller, given):
    asked = controller(RECORD.format(limit="UNLIMITED", nodes="node001"))
    assert way(values(**given)) is None
    assert not asked.exists()


def test_a_job_that_slurm_does_not_know_is_looked_for_here(controller, monkeypatch, tmp_path):
    controller("", squeue="echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert way(values(jobs=("77",))) is None
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert way(values(jobs=("77",))) is None


def test_a_controller_that_does_not_answer_keeps_nobody_long(controller, monkeypatch, capsys):
    monkeypatch.setattr(slurm, "UNASKED_SECONDS", 0.2)
    controller("", squeue="exec sleep 60")
    assert way(values(jobs=("77",))) is None
    assert "is looked for on this host alone" in capsys.readouterr().err


def test_several_tasks_of_an_array_are_named(controller):
    controller("", squeue="printf '4712|4711_1|RUNNING|n1\\n4713|4711_2|RUNNING|n2\\n'")
    with pytest.raises(UsageError, match="name one of them"):
        way(values(jobs=("4711",)))
