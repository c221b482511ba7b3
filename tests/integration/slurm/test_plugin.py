"""deploy/slurm in a real Slurm: `--profd` and TaskProlog make a job recordable, and never make one fail."""

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from profclient.launch import STARTUP

from tests.integration.slurm.test_slurm import PROFCTL, PROGRAM, SECONDS
from tests.support import slurm
from tests.support.daemon import running_daemon
from tests.support.waiting import until

HEADER = Path("/usr/include/slurm/spank.h")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(slurm.missing()), reason=f"no Slurm here ({', '.join(slurm.missing())}): slurm-wlm, munge"),
    pytest.mark.skipif(not HEADER.exists(), reason="no headers of Slurm here: libslurm-dev"),
]

DEPLOY = Path(__file__).parents[3] / "deploy" / "slurm"
BUILD = ("gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared")
SHOWS = 'printf \'%s|\' "$PYTHONPATH" "$NVTX_INJECTION64_PATH" "$CUDA_INJECTION64_PATH"; echo'
AT_STEP = "iterations:5@step:100"
WITHOUT = ["", "", "", "\n"]
WITH = [STARTUP, "/opt/nvtx.so", "", "\n"]


def built(folder):
    """The plugin, and the line of plugstack.conf for it."""
    plugin = f"{folder}/profd_spank.so"
    subprocess.run([*BUILD, "-o", plugin, str(DEPLOY / "profd_spank.c")], check=True)
    return f"optional {plugin} startup={STARTUP}"


@pytest.fixture(scope="module")
def cluster():
    with tempfile.TemporaryDirectory(prefix="ps-", dir="/tmp") as folder:
        line = f"{built(folder)} nvtx=/opt/nvtx.so cuda=/opt/cupti.so\n"
        files = {"plugstack.conf": f"optional {folder}/no_such_plugin.so\n{line}", "task_prolog.sh": prolog()}
        more = "PlugStackConfig={folder}/plugstack.conf\nTaskProlog={folder}/task_prolog.sh"
        with slurm.cluster_of("n1", more=more, files=files) as found:
            yield found


def job(cluster, *command, **environ):
    """What a command of Slurm's prints, in an environment without ours."""
    ours = ("PYTHONPATH", "NVTX_INJECTION64_PATH", "CUDA_INJECTION64_PATH", "USE_PROFD")
    given = {name: value for name, value in cluster.environ.items() if name not in ours}
    done = subprocess.run(command, env={**given, **environ}, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(
    ("options", "environ", "found"),
    [
        ((), {}, WITHOUT),
        (("--profd",), {}, WITH),
        (("--profd=off",), {}, WITHOUT),
        (("--profd=cuda",), {}, [STARTUP, "/opt/nvtx.so", "/opt/cupti.so", "\n"]),
        (("--profd",), {"PYTHONPATH": "/mine:/x"}, [f"{STARTUP}:/mine:/x", *WITH[1:]]),
        (("--profd",), {"PYTHONPATH": f"/mine:{STARTUP}"}, [f"/mine:{STARTUP}", *WITH[1:]]),
        (("--profd",), {"NVTX_INJECTION64_PATH": "/other"}, [STARTUP, "/other", "", "\n"]),
        ((), {"USE_PROFD": "1", "PYTHONPATH": "/mine"}, [f"{STARTUP}:/mine", *WITH[1:]]),
        (("--profd=off",), {"USE_PROFD": "on"}, WITHOUT),
        ((), {"USE_PROFD": "no" * 20}, WITHOUT),
    ],
    ids=["plain", "on", "off", "cuda", "first", "once", "another tool", "variable", "option first", "no word"],
)
def test_what_a_task_finds(cluster, options, environ, found):
    assert job(cluster, "srun", *options, "sh", "-c", SHOWS, **environ).stdout.split("|") == found


def test_a_value_that_is_none_is_said_and_the_job_runs(cluster):
    done = job(cluster, "srun", "--profd=evrything", "sh", "-c", SHOWS)
    assert done.stdout.split("|") == WITHOUT
    assert "--profd=evrything is none of on, off, cuda and iterations:N@step:M" in done.stderr


def test_a_capture_at_a_step_reaches_the_program(cluster):
    asked = "iterations:5@step:100"
    shows = 'echo "$PROFD_CAPTURE|$PYTHONPATH"'
    assert job(cluster, "srun", f"--profd={asked}", "sh", "-c", shows).stdout == f"{asked}|{STARTUP}\n"
    refused = job(cluster, "srun", "--profd=iterations:$(id)@step:1", "sh", "-c", shows)
    assert (refused.stdout, "is none of" in refused.stderr) == ("|\n", True)


def test_steps_of_a_batch_script_and_of_an_allocation(cluster, tmp_path):
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n{SHOWS}\nunset PYTHONPATH NVTX_INJECTION64_PATH\nsrun sh {tmp_path}/step.sh\n")
    (tmp_path / "step.sh").write_text(SHOWS)
    job(cluster, "sbatch", "--wait", "--profd", f"--output={tmp_path}/out", f"--error={tmp_path}/err", str(script))
    assert [line.split("|") for line in (tmp_path / "out").read_text().splitlines(keepends=True)] == [WITH, WITH]
    done = job(cluster, "salloc", "--profd", "srun", "sh", "-c", SHOWS)
    assert done.stdout.split("|") == WITH


def test_an_unchanged_program_is_recorded(cluster):
    with (
        running_daemon(environ={"PROFD_SDK_ARENA_BYTES": "24MiB"}) as daemon,
        cluster.srun("--profd", sys.executable, "-c", PROGRAM, environ=daemon.environ) as srun,
        closing(srun.stdout),
    ):

        def attached():
            asked = [*PROFCTL, "ps", "--json"]
            done = subprocess.run(asked, env=daemon.environ, capture_output=True, text=True, timeout=SECONDS)
            return [one["rank"] for one in json.loads(done.stdout) if one["job"] and one["sources"][:1] == ["sdk"]]

        try:
            assert until(attached, "the task is attached") == [0]
        finally:
            srun.terminate()
            srun.wait(SECONDS)


@contextmanager
def full(folder):
    """Nobody takes the connections of a socket for agents, and no more of them have room."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as listening, ExitStack() as stack:
        listening.bind(f"{folder}/agent.sock")
        listening.listen(0)
        while True:
            one = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            one.setblocking(False)
            if one.connect_ex(f"{folder}/agent.sock") == errno.EAGAIN:
                break
        yield f"unix:{folder}/profd.sock"


@contextmanager
def hung(folder):
    with running_daemon() as daemon:
        os.kill(daemon.process.pid, signal.SIGSTOP)
        try:
            yield f"unix:{daemon.socket}"
        finally:
            os.kill(daemon.process.pid, signal.SIGCONT)


@contextmanager
def absent(folder):
    yield f"unix:{folder}/nowhere"


@pytest.mark.parametrize("daemon", [absent, hung, full])
def test_no_job_fails_or_hangs_because_of_the_daemon(cluster, daemon):
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as folder, daemon(folder) as address:
        program = (sys.executable, "-c", "import profclient; print(profclient.__name__)")
        assert job(cluster, "srun", "--profd", *program, PROFD_ADDRESS=address).stdout == "profclient\n"


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, ""),
        ({"USE_PROFD": "0"}, ""),
        ({"USE_PROFD": "1"}, f"export PYTHONPATH={STARTUP}\n"),
        ({"USE_PROFD": "on", "PYTHONPATH": "/mine:/x"}, f"export PYTHONPATH={STARTUP}:/mine:/x\n"),
        ({"USE_PROFD": "on", "PYTHONPATH": f"/mine:{STARTUP}"}, ""),
        ({"USE_PROFD": AT_STEP}, f"export PROFD_CAPTURE={AT_STEP}\nexport PYTHONPATH={STARTUP}\n"),
    ],
    ids=["no", "off", "on", "first", "once", "step"],
)
def test_what_the_prolog_says_to_slurm(tmp_path, environ, said):
    environ = {"PATH": os.environ["PATH"], **environ}
    done = subprocess.run(["sh", "-c", prolog()], env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, said)


def test_the_prolog_in_slurm(cluster):
    found = job(cluster, "srun", "sh", "-c", SHOWS, USE_PROFD="yes").stdout
    assert found.split("|") == [STARTUP, "", "", "\n"]  # which is no word of the plugin's


def prolog():
    text = (DEPLOY / "task_prolog.sh").read_text()
    return re.sub(r"^startup=.*$", f"startup={STARTUP}", text, flags=re.MULTILINE)
