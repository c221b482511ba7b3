"""From `profclient.attach()` to a trace that can be read: real processes all the way."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from profproto.v1 import capture_pb2 as pb
from profproto.v1 import host_pb2
from profproto.v1.host_pb2_grpc import HostServiceStub

from tests.support.attached import COUNT, WAIT_SECONDS, Captures, assert_covers, attached, sql, values, whole
from tests.support.daemon import RunningDaemon
from tests.support.waiting import until

pytestmark = pytest.mark.slow


def profctl(daemon: RunningDaemon, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "from profclient.cli import main; main()", *arguments],
        env=daemon.environ,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_event_of_a_window_is_in_the_trace_once(daemon: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(daemon)
    with attached(daemon, tmp_path) as job:
        capture = captures.recording(job.pid)
        before = job.count
        job.counts_on()
        after = job.count
        [target] = captures.stop(capture).targets
        assert (target.state, list(target.sources)) == (pb.STATE_STORED, ["sdk"]), target.message
        found = values(daemon, target.trace)
        assert_covers(found, before, after)
        [[ranges, open_ones]] = sql(
            daemon, target.trace, "select count(*), count(*) filter (end_ns is null) from events where name = 'work'"
        )
        assert ranges - len(found) in (0, 1)  # a window may begin or end between a range and its counter
        assert open_ones <= 1
        assert not target.lost
        assert target.cost.how == "estimated"  # it has no steps
        assert target.cost.seconds > 0
        assert [phase.name for phase in target.waterfall][:4] == ["arm", "window", "stop", "drain"]
        job.check_results()


def test_a_process_is_recorded_again_and_again(daemon: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(daemon)
    with attached(daemon, tmp_path) as job:
        last = -1
        for _ in range(5):
            [target] = captures.record(job.pid).targets
            assert target.state == pb.STATE_STORED, target.message
            found = values(daemon, target.trace)
            assert whole(found)
            assert found[0] > last
            last = found[-1]
        [descriptors] = {len(os.listdir(f"/proc/{job.pid}/fd")) for _ in range(1)}
        captures.record(job.pid)
        until(lambda: len(os.listdir(f"/proc/{job.pid}/fd")) == descriptors, "the arena is let go of")
        job.check_results()


def test_several_processes_at_once(daemon: RunningDaemon, tmp_path: Path) -> None:
    with attached(daemon, tmp_path) as one, attached(daemon, tmp_path) as two, attached(daemon, tmp_path) as three:
        jobs = {job.pid: job for job in (one, two, three)}
        capture = Captures(daemon).record(*jobs)
        assert capture.state == pb.STATE_STORED
        assert {target.pid for target in capture.targets} == set(jobs)
        for target in capture.targets:
            assert whole(values(daemon, target.trace))
        for job in jobs.values():
            job.check_results()


def test_python_calls_are_recorded_with_stacks(daemon: RunningDaemon, tmp_path: Path) -> None:
    program = COUNT.replace("checksum = (checksum * 31 + i) % 1000003", "checksum = compute(checksum, i)").replace(
        "done = threading.Event()",
        "done = threading.Event()\ndef compute(checksum, i):\n    return divmod(checksum * 31 + i, 1000003)[1]\n",
    )
    with attached(daemon, tmp_path, program) as job:
        [target] = Captures(daemon).record(job.pid, stacks=True, c_calls=True).targets
        assert target.state == pb.STATE_STORED, target.message
        kinds = dict(
            sql(daemon, target.trace, "select name, count(*) from events where name not in ('n', 'work') group by name")
        )
        assert any("compute" in name for name in kinds), kinds
        assert any("divmod" in name for name in kinds), kinds
        assert whole(values(daemon, target.trace))
        job.check_results()


def test_ps_knows_who_attached_and_what_it_calls_itself(daemon: RunningDaemon, tmp_path: Path) -> None:
    environ = {"RANK": "3", "WORLD_SIZE": "8", "SLURM_JOB_ID": "4711"}
    with attached(daemon, tmp_path, environ=environ) as job:
        shown = json.loads(profctl(daemon, "ps", "--pid", str(job.pid), "--json"))
        [process] = shown
        assert process["sources"][0] == "sdk"
        assert (process["rank"], process["job"], process["state"]) == (3, "4711", "ready")
        status = daemon.stub(HostServiceStub).GetHostStatus(
            host_pb2.GetHostStatusRequest(), metadata=daemon.metadata(), timeout=WAIT_SECONDS
        )
        [sdk] = [source for source in status.sources if source.name == "sdk"]
        assert sdk.available
        assert sdk.processes >= 1


def test_the_commands_of_a_first_day(daemon: RunningDaemon, tmp_path: Path) -> None:
    with attached(daemon, tmp_path) as job:
        pid = str(job.pid)
        assert "sdk" in profctl(daemon, "start", "--pid", pid, "--duration", "1s", "--dry-run")
        told = profctl(daemon, "start", "--pid", pid, "--duration", "200ms")
        assert "stored [sdk]" in told
        assert "work" in profctl(daemon, "top")
        assert "work" in profctl(daemon, "tree")
        out = tmp_path / "trace.json"
        profctl(daemon, "export", "-f", "chrome", "-o", str(out))
        assert any(event["name"] == "work" for event in json.loads(out.read_text())["traceEvents"])
        job.check_results()


def test_the_estimate_knows_the_last_trace_of_such_options(daemon: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(daemon)

    def estimate(**options: Any) -> pb.TargetEstimate:
        request = pb.EstimateCaptureRequest(
            selector=pb.Selector(pids=[job.pid]), options=pb.Options(duration_ns=10_000_000_000, **options)
        )
        [found] = captures.call("EstimateCapture", request).targets
        return found

    with attached(daemon, tmp_path) as job:
        captures.record(job.pid)
        known = estimate()
        assert known.source == "sdk"
        assert known.events > 100
        assert known.cost_ns > 0
        assert known.memory_bytes == 24 << 20
        with_stacks = estimate(stacks=True)
        assert not with_stacks.HasField("events")
        assert not with_stacks.HasField("cost_ns")
        dry = profctl(daemon, "start", "--pid", str(job.pid), "--duration", "10s", "--dry-run")
        assert f"about {known.events:,}" in dry
        assert re.search(r"time of it +[\d.]+ [mu]?s", dry), dry
        job.check_results()


def test_sources_that_cannot_bound_their_cost_are_refused(daemon: RunningDaemon, tmp_path: Path) -> None:
    with attached(daemon, tmp_path) as job:
        captures = Captures(daemon)
        [target] = captures.record(job.pid, max_overhead=0.5, source="pyspy", native=True).targets
        assert (target.state, target.reason) == (pb.STATE_REFUSED, pb.REASON_NOT_HONOURED)
        assert "--max-overhead" in target.message
        [target] = captures.record(job.pid, max_overhead=0.5).targets
        assert (target.state, list(target.sources)) == (pb.STATE_STORED, ["sdk"]), target.message
        job.check_results()


def test_an_open_ended_capture_ends_when_it_is_stopped(daemon: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(daemon)
    with attached(daemon, tmp_path) as job:
        capture = captures.start(job.pid, open_ended=True).id
        captures.until(capture, lambda c: c.targets[0].state == pb.STATE_RECORDING)
        job.counts_on()
        [target] = captures.stop(capture).targets
        assert target.state == pb.STATE_STORED, target.message
        assert whole(values(daemon, target.trace))
        job.check_results()


def test_iterations_are_the_programs_own_steps(daemon: RunningDaemon, tmp_path: Path) -> None:
    program = COUNT.replace("    i += 1\n", "    i += 1\n    profclient.step()\n")
    with attached(daemon, tmp_path, program) as job:
        [target] = Captures(daemon).record(job.pid, duration_ns=0, iterations=50).targets
        assert target.state == pb.STATE_STORED, target.message
        found = values(daemon, target.trace)
        assert whole(found)
        assert len(found) >= 50
        job.check_results()


_WORK = "checksum = (checksum * 31 + i) % 1000003"
CALLS = COUNT.replace(_WORK, f"{_WORK}; calls()").replace(
    "done = threading.Event()",
    "done = threading.Event()\ndef leaf(): pass\ndef calls():\n    for _ in range(50): leaf()\n",
)


def test_what_costs_too_much_is_left_out_and_said(daemon: RunningDaemon, tmp_path: Path) -> None:
    captures = Captures(daemon)
    with attached(daemon, tmp_path, CALLS) as job:
        # GIVEN more calls than the limit bears, and ranges that alone cost far less
        capture = captures.recording(job.pid, stacks=True, max_overhead=0.01)
        # WHEN the first seconds have shown that
        captures.until(capture, lambda c: "without stacks" in c.targets[0].doing)
        job.counts_on()
        [target] = captures.stop(capture).targets
        # THEN the calls were left out from some moment on, and the ranges were not
        assert target.state == pb.STATE_STORED, target.message
        [said] = [text for text in target.not_honoured if text.startswith("stacks:")]
        assert "left out from" in said
        assert whole(values(daemon, target.trace))
        job.check_results()
