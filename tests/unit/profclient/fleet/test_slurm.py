"""What Slurm's words mean; tests/integration/slurm has a real one."""

import os

import pytest
from profclient.errors import NotFoundError, UnreachableError, UsageError
from profclient.fleet import slurm
from profclient.fleet.slurm import Job, NodeList, answered, environment, of_record, via


def test_a_task_of_an_array_is_its_raw_id():
    assert answered("4711_3", "4714|4711_3|RUNNING|node[001-002]\n") == Job("4714", (NodeList("node[001-002]"),))


def test_several_tasks_are_named():
    text = "4714|4711_3|RUNNING|n1\n4715|4711_4|RUNNING|n2\n4711|4711_[5-9]|PENDING|\n"
    with pytest.raises(UsageError, match="4711_3, 4711_4"):
        answered("4711", text)
    assert answered("4711", text.splitlines()[0] + "\n" + text.splitlines()[2]) == Job("4714", (NodeList("n1"),))


def test_a_heterogeneous_job_is_that_of_its_leader():
    text = "4711|4711+0|RUNNING|n1\n4712|4711+1|RUNNING|n[2-3]\n"
    both = (NodeList("n1", 0), NodeList("n[2-3]", 1))
    assert answered("4711", text) == answered("4712", text) == Job("4711", both)
    assert answered("4711+1", text) == Job("4711", both[1:])
    assert "--jobid 4711 --het-group=1 --overlap" in via("4711", both[1])


RECORD = """JobId=4714 ArrayJobId=4711 ArrayTaskId=3 JobName=train
   JobState=RUNNING Reason=None Dependency=(null)
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=node[001-002]
"""


def test_a_record_of_the_controller_s_is_the_job():
    assert of_record(RECORD) == Job("4714", (NodeList("node[001-002]"),))


@pytest.mark.parametrize(
    "text",
    [
        "",
        RECORD + "\n" + RECORD,
        RECORD.replace("RUNNING", "PENDING"),
        RECORD.replace("node[001-002]", ""),
        RECORD + "   HetJobId=4711 HetJobOffset=0\n",
        RECORD + "   Comment=x\n   NodeList=elsewhere\n",
        RECORD.replace("train", "x\n   JobState=RUNNING"),
        RECORD.replace("train", "x\nJobId=1 "),
    ],
    ids=["nothing", "two", "waits", "nodes", "component", "comment", "name", "id"],
)
def test_a_record_that_is_not_plain_is_not_believed(text):
    assert of_record(text) is None


@pytest.mark.parametrize(("text", "why"), [("", "not in the queue"), ("7|7|PENDING|\n", "PENDING"), ("x|\n", "queue")])
def test_a_job_that_does_not_run(text, why):
    with pytest.raises(NotFoundError, match=why):
        answered("7", text)


@pytest.mark.parametrize("name", ["", "-w", "7;x", "7_", "7_[1-3]", "٣", "7+", "7+1_2", "9" * 11])
def test_what_is_no_id_is_not_asked_for(name):
    with pytest.raises(UsageError, match="no id"):
        slurm.job(name)


def test_a_machine_without_slurm(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnreachableError, match="scontrol cannot be run"):
        slurm.job("7")
    for name in ("scontrol", "squeue"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1\n")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(UnreachableError, match="Unable to contact"):
        slurm.job("7")


def test_the_environment_of_the_shell_s_own_job_stays_out():
    given = ["PATH", "SLURM_CONF", "SLURM_NTASKS", "SRUN_DEBUG", "_SLURM_SPANK_OPTION_profd_profd", "SLURMD_NODENAME"]
    assert list(environment(dict.fromkeys(given, "1"))) == ["PATH", "SLURM_CONF", "SLURMD_NODENAME"]


async def test_nodes_that_the_controller_says_are_down(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await slurm.unfit(["n1"]) == {}
    (tmp_path / "sinfo").write_text("#!/bin/sh\nprintf 'n1|mixed\\nn2|down\\nn3|idle*\\nn4|draining\\n'\n")
    (tmp_path / "sinfo").chmod(0o755)
    assert list(await slurm.unfit(["n1", "n2", "n3", "n4"])) == ["n2", "n3"]


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("head -c 64000000 /dev/zero", "more than 16 MiB: no controller does"),
        ("head -c 64000000 /dev/zero >&2", "more than 16 MiB: no controller does"),
        ("while :; do echo JobId=7; done", "has not answered scontrol for 0.2 s|more than 16 MiB"),
        ("exec >&- 2>&-; exec sleep 600", "has not answered scontrol for 0.2 s"),
    ],
    ids=["much", "much of an error", "without end", "nothing, and stays"],
)
def test_what_no_controller_answers_ends_soon(tmp_path, monkeypatch, says, why):
    """Whatever `scontrol` is on the path: its words are not all kept before the first is read."""
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(UnreachableError, match=why):
        slurm.job("7", 0.2 if "0.2" in why else 60.0)


def test_an_answer_is_told_with_the_end_of_its_command(tmp_path, monkeypatch):
    for name, says in (("scontrol", "echo nothing of use"), ("squeue", "printf 'no \\377 way' >&2; exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{says}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(UnreachableError, match="squeue failed: no � way"):
        slurm.job("7")
