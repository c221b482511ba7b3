"""Unmodified PyTorch processes, traced from outside."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from profd.capture.choice import not_honoured
from profd.model.capture import Options, Reason, Recording, State
from profd.sources.kineto.source import KinetoSource
from profd.targets.process import Process

from tests.integration.kineto.conftest import session
from tests.support.python_jobs import seen
from tests.support.torch_jobs import needs_torch, torch_job
from tests.support.waiting import eventually

pytestmark = needs_torch

PATIENCE = 60.0
MS = 1_000_000


async def registered(source: KinetoSource, pid: int) -> Process:
    process = seen(pid)
    await eventually(lambda: any(known.peer.id == process.id for known in source.registered()))
    return process


def trace_of(recording: Recording) -> dict:
    assert recording.state is State.DRAINING, recording
    (file,) = recording.files
    assert file.format == "chrome"
    return json.loads(Path(file.path).read_bytes())


def names(trace: dict) -> list[str]:
    return [event.get("name", "") for event in trace["traceEvents"]]


async def test_duration_then_iterations(source: KinetoSource, socket_dir: Path, tmp_path: Path) -> None:
    with torch_job("train", tmp_path, socket_dir=socket_dir) as job:
        process = await registered(source, job.pid)
        asked = Options(duration_ns=300 * MS, memory=True, flops=True)
        plan = source.plan(process, asked)
        assert plan.serves
        assert [text.partition(":")[0] for text in not_honoured(source.declaration, asked, plan)] == ["memory"]
        first, reports = session(tmp_path, "c1")
        recording = await source.record(process, Options(duration_ns=500 * MS, shapes=True, stacks=True), first)
        trace = trace_of(recording)
        assert (reports.states[0], reports.states[-1]) == (State.ARMED, State.DRAINING)
        assert recording.start_ns is not None
        assert recording.end_ns is not None
        assert recording.end_ns > recording.start_ns
        assert [phase.name for phase in recording.waterfall] == [
            "poll wait",
            "lead",
            "window",
            "writing",
            "pick-up",
        ]
        assert any("Input Dims" in event.get("args", {}) for event in trace["traceEvents"])
        assert any(event.get("cat") == "python_function" for event in trace["traceEvents"])
        assert any(name.startswith("<built-in") for name in names(trace))  # so that --c-calls is honoured

        second, _ = session(tmp_path, "c2")
        recording = await source.record(process, Options(iterations=3), second)
        # kineto ends with the third step, or a step later on a busy machine
        assert names(trace_of(recording)).count("Optimizer.step#SGD.step") >= 3
        assert recording.not_honoured == []
        assert list(job.trace_dir.iterdir()) == []
        assert job.popen.poll() is None
        assert source.statistics()["configs"] >= 2


async def test_two_processes_at_once_and_a_common_start(source: KinetoSource, socket_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with (
        torch_job("train", tmp_path / "a", socket_dir=socket_dir) as one,
        torch_job("inference", tmp_path / "b", socket_dir=socket_dir) as other,
    ):
        processes = [await registered(source, job.pid) for job in (one, other)]
        start_at_ns = time.time_ns() + 5_000 * MS
        tasks = []
        for number, process in enumerate(processes):
            begun, _ = session(tmp_path, f"c{number}")
            options = Options(duration_ns=200 * MS, start_at_ns=start_at_ns)
            tasks.append(asyncio.create_task(source.record(process, options, begun)))
        await eventually(lambda: source.offer(processes[0]).busy)
        third, _ = session(tmp_path, "third")
        refused = await source.record(processes[0], Options(duration_ns=200 * MS), third)
        assert refused.state is State.BUSY
        assert refused.reason is Reason.CAPTURE_RUNNING
        assert "c0" in refused.message
        recordings = [await task for task in tasks]
        for recording in recordings:  # on a busy machine a poll or a window may come too late; then it is said
            assert recording.start_ns is not None
            assert recording.warnings or recording.start_ns >= start_at_ns
        traces = [trace_of(recording) for recording in recordings]
        assert "aten::linear" in names(traces[0])
        assert not any(name.startswith("Optimizer.step") for name in names(traces[1]))


async def test_exit_during_the_window(source: KinetoSource, socket_dir: Path, tmp_path: Path) -> None:
    with torch_job("train", tmp_path, socket_dir=socket_dir) as job:
        process = await registered(source, job.pid)
        begun, reports = session(tmp_path)
        task = asyncio.create_task(source.record(process, Options(duration_ns=20_000 * MS), begun))
        await eventually(lambda: State.RECORDING in reports.states)
        begun.stop.set()
        await eventually(lambda: any("cannot be stopped" in detail for _, detail in reports))
        job.kill()
        async with asyncio.timeout(PATIENCE):
            recording = await task
        assert recording.state is State.FAILED
        assert recording.reason is Reason.TARGET_ENDED
        assert "SIGSEGV" in recording.message
        assert list(job.trace_dir.iterdir()) == []


async def test_the_jobs_own_profiler_comes_first(source: KinetoSource, socket_dir: Path, tmp_path: Path) -> None:
    with torch_job("profiling", tmp_path, socket_dir=socket_dir) as job:
        process = await registered(source, job.pid)
        job.say("profile")
        await eventually(lambda: source.offer(process).busy)
        assert source.offer(process).why_code is Reason.OTHER_PROFILER
        begun, _ = session(tmp_path)
        recording = await source.record(process, Options(duration_ns=100 * MS), begun)
        assert (recording.state, recording.reason) == (State.BUSY, Reason.OTHER_PROFILER)
        assert source.statistics().get("configs", 0) == 0
        job.say("stop")
        await eventually(lambda: source.offer(process).can)


async def test_a_process_that_has_just_started_is_waited_for(
    source: KinetoSource, socket_dir: Path, tmp_path: Path
) -> None:
    with torch_job("train", tmp_path, socket_dir=socket_dir) as job:
        process = seen(job.pid)
        asked = source.offer(process)
        assert asked.can, asked
        begun, reports = session(tmp_path)
        recording = await source.record(process, Options(duration_ns=200 * MS), begun)
        trace_of(recording)
        assert recording.cost.how == "estimated"
        # It may have registered meanwhile: then nothing is said.
        assert "register" in reports[0][1] or "poll" in reports[0][1]
        later = source.plan(process, Options(duration_ns=1000 * MS))
        assert later.events
