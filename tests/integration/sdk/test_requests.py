"""Captures that programs ask for themselves: PROFD_CAPTURE at a step, and profclient.request_capture()."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from profclient.launch import STARTUP
from profproto.v1 import capture_pb2 as pb

from tests.support.attached import READY, Attached, Captures, attached, spawn
from tests.support.daemon import RunningDaemon
from tests.support.stepping_ranks import PROGRAM
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("sdk_requests")]

STEP = 400  # of 5 ms
PROFCTL = (sys.executable, "-W", "error", "-c", "from profclient.cli import main; main()")

STEPS = f"""
import mmap, os, sys, threading, time
import profclient
profclient.attach()
{READY}
while not done.is_set():
    profclient.step()
    time.sleep(0.005)
"""

# Knows nothing of profd; `shared` says whether its steps are counted by nobody.
UNCHANGED = f"""
import mmap, os, sys, threading, time
import torch
{READY}
weight = torch.nn.Parameter(torch.ones(4))
weight.grad = torch.ones(4)
optimizer = torch.optim.SGD([weight], lr=0.1)
while not done.is_set():
    optimizer.step()
    time.sleep(0.005)
    plain = type(vars(torch.autograd.profiler.record_function)["__exit__"]) is type(lambda: 0)
    shared[:8] = int(plain).to_bytes(8, "little")
"""

# Its child steps on by itself, from the same count.
FORKS = STEPS.replace(
    "while not done", "parent = os.getpid()\nos.fork()\nwhile parent in (os.getpid(), os.getppid()) and not done"
)

ASKS = f"""
import json, mmap, os, sys, threading, time
import profclient
profclient.attach()
{READY}
asked = [profclient.request_capture(duration=0.2, reason="step 812 took 3.1x") for _ in range(3)]
while asked[0].state == "asked" and not done.is_set():
    time.sleep(0.01)
print(json.dumps([(each.state, each.capture, each.why) for each in asked]), flush=True)
while not done.is_set():
    with profclient.record_function("work"):
        time.sleep(0.001)
"""


def environ(job: str, rank: int, ranks: int, capture: str) -> dict[str, str]:
    return {"SLURM_JOB_ID": job, "RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks), "PROFD_CAPTURE": capture}


def of_job(daemon: RunningDaemon, jobs: Sequence[Attached]) -> list[pb.Capture]:
    """Captures that have one of these processes."""
    pids = {job.pid for job in jobs}
    found = Captures(daemon).call("ListCaptures", pb.ListCapturesRequest()).captures
    return [capture for capture in found if pids & {target.pid for target in capture.targets}]


def ended(daemon: RunningDaemon, jobs: Sequence[Attached]) -> pb.Capture:
    until(lambda: len(of_job(daemon, jobs)) > 0, "the capture has begun")
    return Captures(daemon).ended(of_job(daemon, jobs)[0].id)


def test_ranks_that_come_to_the_step_are_one_capture_of_the_same_steps(daemon: RunningDaemon, tmp_path: Path):
    job, asked, steps = uuid.uuid4().hex, f"iterations:3@step:{STEP}", tmp_path / "steps"
    steps.write_bytes(bytes(16))
    together = {"STEPS": str(steps), "PACE": "0.005"}
    with contextlib.ExitStack() as stack:
        ranks = [
            stack.enter_context(
                attached(daemon, tmp_path, PROGRAM, environ={**together, **environ(job, rank, 2, asked)})
            )
            for rank in range(2)
        ]
        capture = ended(daemon, ranks)
        assert len(of_job(daemon, ranks)) == 1
    assert {target.pid for target in capture.targets} == {rank.pid for rank in ranks}
    assert capture.reason == f"PROFD_CAPTURE={asked}"
    assert [(target.state, target.steps.first) for target in capture.targets] == [(pb.STATE_STORED, STEP - 1)] * 2
    assert {target.steps.count for target in capture.targets} <= {5, 6}


def test_an_unchanged_program_is_recorded_at_a_step_of_its_optimizer(daemon: RunningDaemon, tmp_path: Path):
    pytest.importorskip("torch", reason="needs torch")
    asked = environ(uuid.uuid4().hex, 0, 1, f"iterations:3@step:{STEP}")
    with attached(daemon, tmp_path, UNCHANGED, environ={**asked, "PYTHONPATH": STARTUP}) as job:
        assert job.count == 0
        (target,) = ended(daemon, [job]).targets
        assert (target.state, target.steps.first) == (pb.STATE_STORED, STEP - 1)
        assert target.steps.count in (5, 6)
        until(lambda: job.count == 1, "its steps are counted no longer")


def test_a_child_of_a_fork_does_not_repeat_it(daemon: RunningDaemon, tmp_path: Path):
    asked = environ(uuid.uuid4().hex, 0, 1, f"duration:1s@step:{STEP}")
    with attached(daemon, tmp_path, FORKS, environ=asked) as job:
        found = ended(daemon, [job])
        captures = Captures(daemon).call("ListCaptures", pb.ListCapturesRequest()).captures
        of_key = [capture for capture in captures if capture.reason == found.reason]
        assert [target.pid for capture in of_key for target in capture.targets] == [job.pid]


def test_a_program_hears_what_came_of_its_request(daemon: RunningDaemon, tmp_path: Path):
    job = spawn(daemon, tmp_path, ASKS)
    try:
        assert job.process.stdout is not None
        first, *others = json.loads(job.process.stdout.readline())
        assert first[0] == "granted", first
        assert [state for state, _, why in others if "within the same second" in why] == ["refused"] * 2
        capture = Captures(daemon).ended(first[1])
    finally:
        job.process.kill()
        job.process.communicate()
    assert (capture.reason, capture.state) == ("step 812 took 3.1x", pb.STATE_STORED)
    wide = {**daemon.environ, "COLUMNS": "300"}
    shown = subprocess.run([*PROFCTL, "captures"], env=wide, capture_output=True, text=True, check=True).stdout
    assert any(line.startswith(first[1]) and "step 812 took 3.1x" in line for line in shown.splitlines()), shown


def test_a_refusal_is_a_capture_that_says_why(own_daemon: RunningDaemon, tmp_path: Path):
    captures = Captures(own_daemon)
    captures.call("SetEnabled", pb.SetEnabledRequest(enabled=False, why="maintenance"))
    job = spawn(own_daemon, tmp_path, ASKS)
    try:
        assert job.process.stdout is not None
        state, _, why = json.loads(job.process.stdout.readline())[0]
        assert (state, "maintenance" in why) == ("refused", True)
    finally:
        job.process.kill()
        job.process.communicate()
    kept = captures.call("ListCaptures", pb.ListCapturesRequest()).captures
    assert [(target.pid, target.state, "maintenance" in target.message) for target in kept[0].targets] == [
        (job.pid, pb.STATE_REFUSED, True)
    ]
    assert '"capture.denied"' in (own_daemon.directory / "state" / "audit.jsonl").read_text()
