"""`--samples`: what py-spy sees of an attached process, in one trace with what the process records itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from profd.attached.sdk.pace import HZ_MAX
from profd.sources.pyspy import tool
from profproto.v1 import capture_pb2 as pb

from tests.support.attached import Attached, Captures, attached, lost, sql
from tests.support.daemon import RunningDaemon, running_daemon
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(tool.find() is None, reason="py-spy is not installed")]

WINDOW_NS = 3_000_000_000
PROGRAM = """
import mmap, os, sys, threading, time
import profclient
profclient.attach()
shared = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 8)
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
def crunch(until):
    while time.perf_counter() < until:
        sum(range(2000))
print("ready", flush=True)
i = 0
while not done.is_set():
    with profclient.record_function("work"):
        crunch(time.perf_counter() + 0.2)
    i += 1
    shared[:8] = i.to_bytes(8, "little")
    time.sleep(0.4)
"""


@pytest.fixture(scope="module")
def daemon() -> Iterator[RunningDaemon]:
    with running_daemon() as found:
        yield found


@pytest.fixture
def job(daemon: RunningDaemon, tmp_path: Path) -> Iterator[Attached]:
    with attached(daemon, tmp_path, PROGRAM) as found:
        yield found


def captured(daemon: RunningDaemon, job: Attached, **options: object) -> pb.TargetStatus:
    capture = Captures(daemon).record(job.pid, duration_ns=WINDOW_NS, **options)
    [target] = capture.targets
    return target


def test_samples_and_ranges_are_in_one_trace_and_agree_on_the_time(daemon: RunningDaemon, job: Attached) -> None:
    target = captured(daemon, job, sample_hz=100)
    assert target.state == pb.STATE_STORED, (target.message, list(target.not_honoured))
    assert not lost(target)
    rows = sql(
        daemon,
        target.trace,
        "select kind, name, start_ns, end_ns, process from events where kind in ('sample', 'user_annotation')",
    )
    rows = [row for row in rows if row[3] is not None]  # the window cut the others
    ranges = [row for row in rows if row[1] == "work"]
    crunching = [row for row in rows if row[0] == "sample" and row[1].endswith(": crunch")]
    assert len(ranges) > 1
    assert len(crunching) > 1
    assert {row[4] for row in ranges} == {row[4] for row in crunching}  # one process
    [[names]] = sql(daemon, target.trace, "select list(name) from threads where name like '%MainThread%'")
    assert [name for name in names if name.endswith("(samples)")] == ["MainThread (samples)"]
    # The clocks agree: most of the time that was sampled in crunch was in ranges, which take a third of it.
    sampled = sum(row[3] - row[2] for row in crunching)
    met = sum(max(0, min(row[3], end) - max(row[2], begin)) for row in crunching for _, _, begin, end, _ in ranges)
    assert met > sampled / 2


def test_without_being_asked_they_are_taken_at_a_rate_that_costs_little(daemon: RunningDaemon, job: Attached) -> None:
    found = 0

    def sampled() -> int:  # on a host that is busy enough a sampler begins after three seconds
        nonlocal found
        target = captured(daemon, job)
        assert target.state == pb.STATE_STORED, target.message
        assert not target.not_honoured
        [[weight]] = sql(daemon, target.trace, "select sum(weight) from events where name like '%<module>'")
        found = weight or 0
        return found

    until(sampled, "samples are taken unasked")
    assert found <= 3 * HZ_MAX


def test_a_short_window_has_none(daemon: RunningDaemon, job: Attached) -> None:
    capture = Captures(daemon).record(job.pid, duration_ns=300_000_000)
    [target] = capture.targets
    if target.trace:  # the program rests longer than that
        assert sql(daemon, target.trace, "select count(*) from events where kind = 'sample'") == [[0]]
    else:
        assert "no samples either: the window was too short" in target.message
