"""Optimizers number the steps of a program that waits for a capture at one of them (PROFD_CAPTURE)."""

from __future__ import annotations

import os

import pytest

from tests.support.agent_daemon import REQUEST, STOPPED, packet_bytes

pytest.importorskip("torch", reason="needs torch")

LOOP = """
import sys, torch
from torch.autograd.profiler import record_function
from profclient import _recorder, agent, step
def counts(): return type(vars(record_function)["__exit__"]) is not type(is_off)
def is_off():
    while counts(): pass
parameter = torch.nn.Parameter(torch.ones(2))
parameter.grad = torch.ones(2)
plain = torch.optim.SGD([parameter], lr=0.1)
class Wrapping(torch.optim.SGD):
    def step(self, closure=None):
        plain.step()
        return super().step(closure)
wrapping = Wrapping([parameter], lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
def scaled(gradient):
    parameter.grad = torch.full((2,), gradient)
    scaler.scale(parameter.sum())
    scaler.step(plain)
    scaler.update()
print("ready", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


@pytest.fixture
def job(agents):
    environ = {"PYTHONWARNINGS": "ignore", "PROFD_CAPTURE": "iterations:3@step:8", "SLURM_JOB_ID": "4711"}
    return agents.job(LOOP, environ=environ)


@pytest.fixture
def link(agents, job):
    found = agents.daemon.accept(greet=False)
    found.greet(can="request")
    return found


@pytest.fixture
def does(job):
    return job.does


def test_a_capture_at_a_step_of_the_optimizer(link, does):
    does("assert counts() and _recorder.steps_begun() == 0")
    does("for _ in range(2): plain.step()")
    does("wrapping.step(); assert _recorder.steps_begun() == 4")  # the outermost; step 0 was the one before the first
    does("scaled(1.0); scaled(float('inf')); assert _recorder.steps_begun() == 5")  # which GradScaler skipped
    request = link.next(REQUEST)
    assert (request.fields["begin_step"], request.fields["iterations"]) == ("8", "3")
    armed = link.arm(begin_step=8, iterations=3)
    os.close(armed.fd)
    link.send(packet_bytes(REQUEST, request.epoch, capture="c1"))
    does("while agent.hooks_begun() == 0: pass")
    does("for _ in range(8): plain.step()")
    stopped = link.next(STOPPED)
    fields = {name: stopped.fields[name] for name in ("reason", "step_from", "steps")}
    assert fields == {"reason": "iterations", "step_from": "7", "steps": "5"}  # one more on each side
    link.release()
    does("is_off(); assert not _recorder.step_awaited() and _recorder.steps_begun() == 0")


def test_nothing_stays_after_a_refusal(link, does):
    does("for _ in range(2): plain.step()")
    # GIVEN a recording that somebody else asked for, which counts steps, too, and leaves them numbered
    os.close(link.arm("ranges", iterations=100).fd)
    does("while agent.hooks_begun() == 0: pass")
    link.stop()
    link.release()
    does("for _ in range(3): plain.step()")
    request = link.next(REQUEST)
    does("assert counts() and _recorder.steps_begun() == 6")
    link.send(packet_bytes(REQUEST, request.epoch, why="maintenance"))
    does("is_off(); assert _recorder.steps_begun() == 0")


def test_the_programs_own_count_comes_first(link, does):
    does("for _ in range(3): plain.step()")
    does("assert [step(), step()] == [0, 1]")
    does("plain.step(); assert _recorder.steps_begun() == 2")
    does("assert counts()")  # until the capture is over
    does("for _ in range(3): step()")
    request = link.next(REQUEST)
    failed = link.arm(begin_step=2, iterations=3)
    assert "missed: step 2" in failed.fields["why"]
    link.send(packet_bytes(REQUEST, request.epoch, capture="c1"))
    does("is_off()")


@pytest.mark.parametrize(
    ("steps", "why"),
    [(2, "the program ended in step 2, before step 8"), (0, "no step was counted")],
    ids=["early", "none"],
)
def test_a_program_that_ends_before_the_step_says_so(link, job, does, steps, why):
    does(f"for _ in range({steps}): plain.step()")
    assert job.end() == 0
    assert f"PROFD_CAPTURE: no capture: {why}" in job.process.stderr.read()
