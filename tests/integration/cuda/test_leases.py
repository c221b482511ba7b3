"""Leases of real processes that are stopped, wake up and are killed. CUDA and CUPTI are stand-ins."""

from __future__ import annotations

import os
import signal

import pytest
from profproto.v1 import capture_pb2 as pb

from tests.integration.cuda.conftest import Program
from tests.support.attached import Captures
from tests.support.daemon import RunningDaemon
from tests.support.waiting import until

pytestmark = pytest.mark.slow


def test_a_stopped_process_that_wakes_up_makes_no_second_holder(daemon: RunningDaemon, program: Program) -> None:
    captures = Captures(daemon)
    with program() as job:
        first = captures.recording(job.pid)
        os.kill(job.pid, signal.SIGSTOP)
        [target] = captures.stop(first).targets
        assert "did not answer when its window was over" in " ".join([target.message, *target.warnings]), target

        [refused] = captures.record(job.pid).targets
        assert refused.state in (pb.STATE_BUSY, pb.STATE_REFUSED), refused
        os.kill(job.pid, signal.SIGCONT)

        def again() -> bool:
            [target] = captures.record(job.pid).targets
            assert target.state in (pb.STATE_STORED, pb.STATE_PARTIAL, pb.STATE_BUSY), target
            return bool(target.state == pb.STATE_STORED)

        until(again, "the process has said that it is disarmed")


def test_captures_follow_one_another(daemon: RunningDaemon, program: Program) -> None:
    captures = Captures(daemon)
    with program() as job:

        def stored() -> bool:
            [target] = captures.record(job.pid).targets
            assert target.state in (pb.STATE_STORED, pb.STATE_BUSY), target.message
            return bool(target.state == pb.STATE_STORED)

        for _ in range(3):
            until(stored, "it is disarmed")


def test_two_ranks_on_one_gpu_are_two_leases(daemon: RunningDaemon, program: Program) -> None:
    captures = Captures(daemon)
    with program(RANK="0") as first, program(RANK="1") as second:
        targets = captures.record(first.pid, second.pid).targets
        assert [target.state for target in targets] == [pb.STATE_STORED] * 2
