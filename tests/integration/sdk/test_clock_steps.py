"""The wall clock is stepped while a process is recorded, as NTP does it: by tests/support/stepped_clock.c."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from profproto.v1 import capture_pb2 as pb

from tests.support.attached import Attached, Captures, attached, sql, whole
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.waiting import until

pytestmark = pytest.mark.slow

HOUR_SECONDS = 3600
PER_CHUNK = 1022  # values of the program that a chunk of the arena holds: a range and a counter for each
ERROR_NS_MAX = 10_000_000  # of a chunk; a thread that loses its core between two readings of a clock makes it large


@dataclass
class Clock:
    """The stepped clock of whoever is started with `environ`."""

    library: Path
    file: Path

    @property
    def environ(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "STEPPED_CLOCK": str(self.file)}

    def step(self, seconds: int) -> None:
        with self.file.open("r+b") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    library, file = tmp_path / "stepped_clock.so", tmp_path / "step"
    source = Path(__file__).parents[2] / "support" / "stepped_clock.c"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    file.write_bytes(bytes(8))
    return Clock(library, file)


def fills_chunks(job: Attached) -> None:
    """Wait until it has filled one chunk and part of the next, whose header reads the clock anew."""
    seen = job.count
    until(lambda: job.count > seen + 2 * PER_CHUNK, "the program fills a chunk")


def stepped_capture(daemon: RunningDaemon, job: Attached, clock: Clock, *steps: int) -> tuple[pb.TargetStatus, int]:
    """A capture in which the clock is stepped; and when it began, by the clock that is not."""
    captures = Captures(daemon)
    began_ns = time.time_ns()
    capture = captures.recording(job.pid)
    fills_chunks(job)
    for seconds in steps:
        clock.step(seconds)
        fills_chunks(job)
    [target] = captures.stop(capture).targets
    return target, began_ns


def check(daemon: RunningDaemon, target: pb.TargetStatus, began_ns: int) -> None:
    """Times go on as if nothing had happened: by the clock as it was when the first chunk was opened."""
    ended_ns = time.time_ns()
    assert target.state == pb.STATE_STORED, target.message
    question = "select cast(value as bigint), start_ns from events where name = 'n' order by cast(value as bigint)"
    rows = sql(daemon, target.trace, question)
    assert whole([value for value, _ in rows])
    times = [start for _, start in rows]
    assert times == sorted(times)
    assert began_ns <= times[0] <= times[-1] <= ended_ns
    meta = json.loads((daemon.state_dir / "traces" / target.trace / "meta.json").read_text())
    assert 0 < meta["clock_error_ns"] < ERROR_NS_MAX


@pytest.mark.parametrize("seconds", [HOUR_SECONDS, -HOUR_SECONDS])
def test_the_clock_of_the_process_is_stepped(daemon: RunningDaemon, tmp_path: Path, clock: Clock, seconds: int) -> None:
    with attached(daemon, tmp_path, environ=clock.environ) as job:
        target, began_ns = stepped_capture(daemon, job, clock, seconds)
        check(daemon, target, began_ns)
        assert any(f"stepped by {seconds:+d}.000 s" in warning for warning in target.warnings), target.warnings
        job.check_results()


def test_the_clock_of_the_host_is_stepped_and_back(tmp_path: Path, clock: Clock) -> None:
    # GIVEN a daemon and a process that see the same clock
    with (
        running_daemon(environ={**clock.environ, "PROFD_SDK_ARENA_BYTES": "24MiB"}) as daemon,
        attached(daemon, tmp_path, environ=clock.environ) as job,
    ):
        target, began_ns = stepped_capture(daemon, job, clock, HOUR_SECONDS, -HOUR_SECONDS, 0)
        check(daemon, target, began_ns)
        assert any("was stepped by" in warning for warning in target.warnings), target.warnings
        # THEN both go on: the next capture is by the clock as it is now
        clock.step(HOUR_SECONDS)
        [after] = Captures(daemon).record(job.pid).targets
        assert after.state == pb.STATE_STORED, after.message
        [[first_ns]] = sql(daemon, after.trace, "select min(start_ns) from events")
        assert first_ns - time.time_ns() > (HOUR_SECONDS - 600) * 1_000_000_000
        assert not any("stepped" in warning for warning in after.warnings)
        job.check_results()
