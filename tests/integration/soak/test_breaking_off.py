"""Whose signals are harm: those of a run that is broken off are not, nor is a program harmed that ends by itself."""

from __future__ import annotations

import random
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kindness.jobs import Job
from soak import counts
from soak.killing import Killer
from soak.rig import Rig, rig, until
from soak.truth import Verdict

pytestmark = pytest.mark.xdist_group("soak")


Running = tuple[Rig, Callable[[], None]]
"""A rig, and what breaks its run off: the last thing that is done with it."""


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    # The folder outlives the run, as a run's own does: lanes look at their programs' logs when these have been ended.
    with tempfile.TemporaryDirectory(prefix="soak-", dir="/tmp") as name, ExitStack() as stack:  # for socket paths
        folder = Path(name)
        folder.chmod(0o755)
        ledger = counts.ledger(folder / "soak", folder / "kept.jsonl")
        one = stack.enter_context(rig(folder, ledger, random.Random(1)))

        def break_off() -> None:
            with pytest.raises(SystemExit), stack.pop_all():
                raise SystemExit

        yield one, break_off


@pytest.fixture
def one(running: Running) -> Rig:
    return running[0]


def lane(one: Rig, job: Job, begins: threading.Event | None = None) -> threading.Thread:
    """What a lane does that waits for its program; `begins`: it looks at nothing before that is set."""

    def wait() -> None:
        if begins is not None:
            begins.wait()
        until(job.over, "it ends")
        one.forget(job)
        one.judge("sdk", "partial", 0, Verdict(1, 0), "what it had recorded went with it")
        one.endless("sdk", "its daemon was ended")

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_programs_that_somebody_else_ends_are_harmed(one: Rig) -> None:
    job = one.start("spin")
    job.popen.send_signal(signal.SIGKILL)
    lane(one, job).join()
    assert f"pid {job.pid}, was harmed: SIGKILL" in one.faults[0]
    assert len(one.faults) == 3


def test_the_killer_leaves_alone_whom_a_lane_has_just_reaped(one: Rig) -> None:
    """Between its wait4 and its note of that, a lane's program has no process and no end."""
    job = one.start("spin")
    job.end()
    ended, job.popen.returncode = job.popen.returncode, None
    assert not Killer(one)._kill("target")
    job.popen.returncode = ended
    one.forget(job)
    assert one.killed == set()


def test_programs_that_we_end_are_not_harmed(running: Running) -> None:
    """A lane may hear of the end at once, or come to look when all has been ended."""
    one, break_off = running
    over = threading.Event()
    lanes, faults = [lane(one, one.start("spin")), lane(one, one.start("spin"), over)], len(one.faults)
    break_off()
    over.set()
    for waiting in lanes:
        waiting.join()
    assert not one.jobs, "each lane has looked at its program"
    assert len(one.faults) == faults
