"""A program without Python, injected as CUDA's driver would, from the command line to the stored trace.

CUDA and CUPTI are stand-ins (tests/support/cuda_program.c, fake_cupti.c): none of this is a claim about a GPU.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from profclient import launch
from profproto.v1 import capture_pb2 as pb

from tests.integration.cuda.conftest import PROFCTL, Program
from tests.support.attached import WAIT_SECONDS, Captures, sources, sql
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.waiting import until

pytestmark = pytest.mark.slow


def test_kernels_find_their_launches(daemon: RunningDaemon, program: Program) -> None:
    with program() as job:
        [target] = Captures(daemon).record(job.pid).targets
        assert (target.state, list(target.sources)) == (pb.STATE_STORED, ["cuda"]), target.message
        assert job.poll() is None
        rows = sql(
            daemon,
            target.trace,
            """select k.name, l.name, count(*) from events k join events l on k.linked = l.row
               where k.kind = 'kernel' and l.correlation = k.correlation group by all""",
        )
        [(kernel, launch, count)] = rows
        assert (kernel, launch) == ("void saxpy<float>(int, float, float*, float*)", "cudaLaunchKernel")
        assert sql(daemon, target.trace, "select count(*) from events where kind = 'kernel'") == [[count]]
        assert count > 0
        assert not list(target.lost)
        # Where there is no driver that is said, and no metric of it is zero.
        sampled = sql(daemon, target.trace, "select count(*) > 0 from events where cat = 'gpu_metric'") == [[True]]
        assert sampled != any(text.startswith("no GPU metrics: ") for text in target.warnings)


def test_a_plan_names_no_wait_where_cupti_was_prepared(daemon: RunningDaemon, program: Program) -> None:
    with program() as job:
        command = [*PROFCTL, "start", "--pid", str(job.pid), "--duration", "1s", "--dry-run"]
        plan = subprocess.run(command, env=daemon.environ, capture_output=True, text=True)
    assert "CUPTI stays in the process" in plan.stdout
    assert "waits for the work that is queued" not in plan.stdout


def test_graphs_as_one_are_not_recorded_and_that_is_said(program: Program) -> None:
    """A job died of it on a GPU: whoever has set it is told, before and after."""
    with running_daemon(environ={"PROFD_GPU_CUDA_GRAPHS": "whole"}) as theirs, program(theirs) as job:
        command = [*PROFCTL, "start", "--pid", str(job.pid), "--duration", "1s", "--dry-run"]
        plan = subprocess.run(command, env=theirs.environ, capture_output=True, text=True)
        assert "gpu.cuda_graphs" in plan.stdout
        [target] = Captures(theirs).record(job.pid).targets
        assert target.state == pb.STATE_STORED, target.message
        assert [said for said in target.not_honoured if "gpu.cuda_graphs" in said]


def test_a_foreign_subscriber_is_named(daemon: RunningDaemon, program: Program) -> None:
    with program(FAKE_CUPTI_HOLDER="Nsight Systems") as job:
        [target] = Captures(daemon).record(job.pid).targets
        assert (target.state, target.reason) == (pb.STATE_BUSY, pb.REASON_OTHER_PROFILER), target
        assert target.message.startswith("another profiler holds CUPTI in this process: CUPTI for Nsight Systems")
        told = subprocess.run([*PROFCTL, "doctor"], env=daemon.environ, capture_output=True, text=True)
        assert "CUPTI for Nsight Systems" in told.stdout


def test_what_a_killed_program_had_handed_over_is_kept(daemon: RunningDaemon, program: Program) -> None:
    captures = Captures(daemon)
    with program() as job:
        capture = captures.recording(job.pid)
        until(lambda: _flushed(job.pid), "CUPTI has handed over a buffer")
        os.kill(job.pid, signal.SIGKILL)
        [target] = captures.ended(capture).targets
        assert target.state in (pb.STATE_PARTIAL, pb.STATE_FAILED), target.message
        assert target.reason == pb.REASON_TARGET_ENDED, target.message


def _flushed(pid: int) -> bool:
    """Some of the process's time has gone by: enough for a buffer."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12]) > 5


@pytest.mark.parametrize(("variables", "subscribed"), [({}, "0 of 1"), ({"PROFD_ATTACH": "0"}, "0 of 0")])
def test_cupti_is_prepared_where_nothing_is_queued(built: Path, variables: dict[str, str], subscribed: str) -> None:
    """Its first subscription waits for the GPU, and the program with it (docs/gpu.md)."""
    environ = {
        **os.environ,
        "CUDA_INJECTION64_PATH": str(launch.native("libprofd_cupti.so")),
        "PROFD_CUPTI_LIBRARY": str(built / "cupti.so"),
    }
    done = subprocess.run(
        [built / "program", built / "libcuda.so.1"],
        env={**environ, "PRINT_CUPTI": "1", "PROFD_ADDRESS": f"unix:{built}/nobody.sock", **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert done.stderr == f"subscribed {subscribed}\n"


def test_the_place_of_the_injection_is_taken(daemon: RunningDaemon) -> None:
    run = [*PROFCTL, "run", "--cuda", "--", "true"]
    environ = {**daemon.environ, "CUDA_INJECTION64_PATH": "/opt/nsight/inject.so"}
    done = subprocess.run(run, env=environ, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode == 2
    assert "CUDA_INJECTION64_PATH is set to /opt/nsight/inject.so" in done.stderr


ATTACHED = """
import ctypes, os, sys
import profclient
ctypes.CDLL(sys.argv[1])  # a libcuda.so.1: the process uses CUDA
fake = ctypes.CDLL(os.environ["PROFD_CUPTI_LIBRARY"])
profclient.attach()
print("ready", flush=True)
import select
while not select.select([0], [], [], 0.001)[0]:
    with profclient.record_function("step"):
        fake.fake_launch(b"gemm", 7, 5)
"""


def test_ranges_and_kernels_of_an_attached_process_are_one_trace(daemon: RunningDaemon, built: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", ATTACHED, str(built / "libcuda.so.1")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**daemon.environ, "PROFD_CUPTI_LIBRARY": str(built / "cupti.so")},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        until(lambda: "sdk" in sources(daemon, process.pid), "the program is attached")
        [target] = Captures(daemon).record(process.pid).targets
        assert (target.state, list(target.sources)) == (pb.STATE_STORED, ["sdk"]), target.message
        rows = sql(
            daemon,
            target.trace,
            """select p.name, l.name, k.name from events k join events l on k.linked = l.row
               join events p on l.parent = p.row where k.kind = 'kernel' group by all""",
        )
        assert rows == [["step", "cudaLaunchKernel", "gemm"]]
        # By CUPTI's own word, too: the external id of a call is its range's. The first range may have begun before.
        named = """select distinct p.name, p.kind from events l join events p on l.external = p.external
                   where l.name = 'cudaLaunchKernel' and p.name != l.name"""
        assert sql(daemon, target.trace, named) == [["step", "user_annotation"]]
    finally:
        process.kill()
        process.communicate()


def test_an_answer_for_a_process_without_the_collector(daemon: RunningDaemon) -> None:
    with subprocess.Popen(["sleep", "600"]) as idle:
        try:
            done = subprocess.run(
                [*PROFCTL, "start", "--pid", str(idle.pid), "--source", "cuda", "--duration", "1s", "--json"],
                env=daemon.environ,
                capture_output=True,
                text=True,
                timeout=WAIT_SECONDS,
            )
            assert "CUDA's collector is not in it" in done.stdout + done.stderr
            assert "profctl run --cuda" in json.dumps(done.stdout + done.stderr)
        finally:
            idle.kill()
