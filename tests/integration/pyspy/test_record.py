"""Recordings of real Python processes with profd's own reader, and with the real py-spy."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from profd import __version__
from profd.decode.samples import SampleDecoder
from profd.events import NO_END
from profd.limits import PROC_STUCK_SECONDS, PROC_WAIT_LOOP_SECONDS
from profd.model.capture import Options, Reason, Recording, State
from profd.sources.base import Session
from profd.sources.pyspy import recording as recording_module
from profd.sources.pyspy import tool
from profd.sources.pyspy.lanes import SamplerLanes
from profd.sources.pyspy.source import PySpySource
from profd.sources.pyspy.target import Target
from profd.targets import guarded
from profd.targets.process import Process
from profd.targets.table import ProcessTable

from tests.support.python_jobs import (
    COUNTER,
    SPIN,
    TWO_THREADS,
    UNTIL_TOLD,
    count_in,
    counter_file,
    needs_ptrace,
    process_of,
    running,
    seen,
)
from tests.support.stack_reader import interpreters, program
from tests.support.waiting import PATIENCE_SECONDS, eventually, until

pytestmark = needs_ptrace

SHORT = Options(duration_ns=400_000_000)
LONG = Options(duration_ns=120_000_000_000)


@pytest.fixture
async def source() -> AsyncIterator[PySpySource]:
    pyspy = PySpySource()
    await pyspy.open()
    yield pyspy
    await pyspy.close()


class Watch:
    """A session, and what was reported to it."""

    def __init__(self, folder: Path) -> None:
        self.states: list[State] = []
        self.changed = asyncio.Event()
        self.session = Session("capture", folder, asyncio.Event(), self._report)

    def _report(self, state: State, doing: str) -> None:
        assert doing
        self.states.append(state)
        self.changed.set()

    async def reaches(self, state: State) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while state not in self.states:
                self.changed.clear()
                await self.changed.wait()


def decoded(recording: Recording) -> tuple[SampleDecoder, list[tuple[str, int, int, int, int]]]:
    """(name, start, end, thread, weight) of all rows."""
    assert recording.state is State.DRAINING
    (file,) = recording.files
    assert file.format == "pyspy"
    found = []
    with Path(file.path).open("rb") as opened:
        decoder = SampleDecoder(opened, os.path.getsize(file.path))
        for batch in decoder.batches():
            columns = batch.events.columns
            for place in range(len(batch.events)):
                values = (int(columns[key][place]) for key in ("start", "end", "thread", "weight"))
                found.append((decoder.dictionaries["name"].values[columns["name"][place]], *values))
    return decoder, found


async def sampled(source: PySpySource, process: Process, options: Options, watch: Watch) -> Recording:
    """A recording with at least one sample: on a starved machine a short window may have none."""
    for window_s in (0.4, 2.0, 10.0, 40.0):
        watch.states.clear()
        recording = await source.record(
            process, dataclasses.replace(options, duration_ns=int(window_s * 1e9)), watch.session
        )
        if recording.state is not State.FAILED or not re.search("No stack|was over before", recording.message):
            break
    return recording


def pyspy_of(process: Process) -> list[Process]:
    """The samplers that look at this one."""
    ours = re.compile(rf"\S*profd-sampler stacks \d+ \d+ {process.id.pid} ")
    theirs = f"--pid {process.id.pid} "
    return [
        p
        for p in ProcessTable().snapshot()
        if ours.match(p.command) or ("py-spy" in p.executable and theirs in p.command)
    ]


async def test_a_window_without_room_for_a_sample_says_so(source: PySpySource, tmp_path: Path) -> None:
    with running(SPIN) as job:
        short = dataclasses.replace(SHORT, duration_ns=1_000_000, sample_hz=1)
        for _ in range(10):  # on a busy host the end of a window comes late, and one may have fallen into it
            recording = await source.record(process_of(job), short, Watch(tmp_path).session)
            if recording.state is State.FAILED:
                break
    assert re.search(r"window of \d+ ms was over before the first of 1 samples a second: ask", recording.message)


async def test_a_sampler_that_has_taken_its_share_of_the_host_is_ended(
    source: PySpySource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_module, "_SPENT_MIN", 0.02)  # a sample takes 0.02 ms
    with running(SPIN) as job:
        watch = Watch(tmp_path)
        watch.session.cores_max = 0.0
        long = dataclasses.replace(SHORT, duration_ns=150_000_000_000, sample_hz=1000)
        recording = await source.record(process_of(job), long, watch.session)
    assert (recording.state, recording.reason) == (State.DRAINING, Reason.NONE), recording.message
    assert "as one may that nobody asked for" in recording.warnings[0]
    assert decoded(recording)[1]


@pytest.mark.parametrize("interpreter", [sys.executable, *interpreters("3.10")])
@pytest.mark.parametrize("asked", [True, False])
async def test_samples_are_our_readers_where_it_knows_the_interpreter(
    source: PySpySource, tmp_path: Path, interpreter: str, asked: bool
) -> None:
    known = interpreter == sys.executable
    with program(interpreter, SPIN) as job:
        watch = Watch(tmp_path)
        watch.session.cores_max = None if asked else 1.0
        recording = await sampled(source, process_of(job), SHORT, watch)
        decoder, rows = decoded(recording)
    reader = "profd-sampler" if known else "py-spy"
    assert [*recording.versions] == [reader]
    assert f"CPU time of {reader} beside the process" in recording.cost.detail
    names = {name for name, *_ in rows}
    assert {name.rpartition(" ")[2] for name in names} >= {"inner", "outer", "<module>"}
    assert decoder.dictionaries["cat"].values == [reader]
    assert len(decoder.tracks.threads) == 1
    assert all(end != NO_END for _, _, end, _, _ in rows)


async def test_one_that_takes_more_than_may_be_is_ended(source: PySpySource, tmp_path: Path) -> None:
    with running(SPIN) as job:
        watch = Watch(tmp_path)
        long = dataclasses.replace(SHORT, duration_ns=150_000_000_000, max_overhead=1e-6)
        recording = await source.record(process_of(job), long, watch.session)
    assert (recording.state, recording.reason) == (State.DRAINING, Reason.OVER_LIMIT), recording.message
    assert "more than the 0.0001 % of --max-overhead" in recording.message
    assert decoded(recording)[1]


async def test_busy_process(source: PySpySource, tmp_path: Path) -> None:
    before = time.time_ns()
    with running(SPIN) as job:
        process = process_of(job)
        assert source.offer(process).can
        watch = Watch(tmp_path)
        recording = await sampled(source, process, SHORT, watch)
    assert (recording.state, recording.reason, recording.message) == (State.DRAINING, Reason.NONE, "")
    assert watch.states == [State.ARMED, State.RECORDING, State.DRAINING]
    assert [phase.name for phase in recording.waterfall] == ["lead", "window", "writing"]
    assert recording.versions == {"profd-sampler": __version__}
    assert recording.cost.how in ("measured", "unknown")  # some kernels keep no schedstat
    assert "never paused" in recording.cost.detail
    assert recording.start_ns is not None
    assert recording.end_ns is not None
    decoder, rows = decoded(recording)
    names = {row[0] for row in rows}
    assert "<string>(7): outer" in names
    assert any("inner" in name for name in names)
    # One sample's time is known to within one sample, and to what the machine was busy with.
    assert all(before < row[1] <= row[2] < time.time_ns() + 10_000_000_000 for row in rows)
    assert all(row[4] >= 1 for row in rows)
    assert decoder.tracks.processes[0]["id"] == process.id.pid
    assert decoder.tracks.processes[0]["name"] == process.command
    assert not decoder.findings.truncated
    assert not decoder.findings.lost


@pytest.mark.parametrize("more", [False, True])
async def test_further_samplers_of_a_user_run_on_their_lane(
    source: PySpySource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: bool
) -> None:
    lanes = source.starts.lanes = SamplerLanes(allowed=math.inf)
    spawns, spawned = tool.spawn, list[asyncio.subprocess.Process]()

    async def spawn(*given: Any) -> asyncio.subprocess.Process:
        spawned.append(await spawns(*given))
        return spawned[-1]

    monkeypatch.setattr(tool, "spawn", spawn)
    with running(SPIN) as job, contextlib.ExitStack() as others:
        process = process_of(job)
        for _ in range(lanes.width - (not more)):
            others.enter_context(lanes.one_more(process.uid))
        watch = Watch(tmp_path)
        recording = asyncio.create_task(source.record(process, LONG, watch.session))
        await watch.reaches(State.RECORDING)
        cores = os.sched_getaffinity(spawned[0].pid)
        watch.session.stop.set()
        await recording
    everywhere = os.sched_getaffinity(0)
    assert len(cores) == (lanes.width if more else len(everywhere))
    assert cores <= everywhere


async def test_two_threads_have_their_names(source: PySpySource, tmp_path: Path) -> None:
    with running(TWO_THREADS) as job:
        recording = await sampled(source, process_of(job), SHORT, Watch(tmp_path))
    decoder, rows = decoded(recording)
    names = {track["name"]: number for number, track in enumerate(decoder.tracks.threads)}
    assert set(names) == {"MainThread", "waiter"}
    waiting = {row[0] for row in rows if row[3] == names["waiter"]}
    assert "<string>(9): waiting" in waiting
    assert "threading.py" in " ".join(waiting)
    busy = {row[0] for row in rows if row[3] == names["MainThread"]}
    assert "<string>(4): busy" in busy
    assert any(track["id"] == job.pid for track in decoder.tracks.threads)


async def test_native_frames(source: PySpySource, tmp_path: Path) -> None:
    with running(TWO_THREADS) as job:
        options = dataclasses.replace(SHORT, native=True, sample_hz=50)
        recording = await sampled(source, process_of(job), options, Watch(tmp_path))
    _, rows = decoded(recording)
    assert [*recording.versions] == ["py-spy"]
    assert any(".so" in row[0] for row in rows)
    assert any("busy" in row[0] for row in rows)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each look at the sampler while the window is open."""
    found, full = list[int](), tool.full
    monkeypatch.setattr(tool, "full", lambda pid, native: bool(found.append(pid)) or full(pid, native))
    return found


async def test_stop_ends_an_open_ended_recording(source: PySpySource, tmp_path: Path, looks: list[int]) -> None:
    with running(SPIN) as job:
        watch = Watch(tmp_path)
        task = asyncio.create_task(source.record(process_of(job), Options(), watch.session))
        await watch.reaches(State.RECORDING)
        await eventually(lambda: len(looks) > 2)  # some samples; nothing depends on how many
        watch.session.stop.set()
        recording = await task
        assert job.poll() is None
    # Stopped before the first sample nothing was seen.
    assert recording.state in (State.DRAINING, State.FAILED, State.CANCELLED)
    if recording.state is State.DRAINING:
        assert recording.reason is Reason.NONE
        decoded(recording)


async def test_a_target_that_answers_late_is_sampled_on(
    source: PySpySource, tmp_path: Path, looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy host: short looks at it are missed, before its window and in it."""

    def missed(pid: int) -> None:
        guarded.patience.waited(pid, os.getuid(), 0.0, PROC_WAIT_LOOP_SECONDS)

    monkeypatch.setattr(guarded, "patience", guarded.Patience())
    with running(SPIN) as job:
        watch, process = Watch(tmp_path), process_of(job)
        missed(job.pid)
        task = asyncio.create_task(source.record(process, Options(), watch.session))
        await watch.reaches(State.RECORDING)
        await eventually(lambda: len(looks) > 2)
        missed(job.pid)
        before = len(looks)
        await eventually(lambda: len(looks) > before + 2 or task.done())
        watch.session.stop.set()
        recording = await task
    assert "does not answer" not in recording.message
    assert len(looks) > before + 2


async def test_a_target_that_does_not_answer_for_seconds_is_sampled_on_and_asked_again_at_the_end(
    source: PySpySource, tmp_path: Path, looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a host so busy that patient looks are missed, too, in the window and behind it THEN no sample is lost."""
    now = [0.0]
    patience = guarded.Patience(lambda: now[0])
    asked = list[float]()

    def allowed(*args: Any, **more: Any) -> float:
        seconds = guarded.Patience.allowed(patience, *args, **more)
        asked.append(seconds)
        return seconds

    monkeypatch.setattr(guarded, "patience", patience)
    monkeypatch.setattr(patience, "allowed", allowed)
    with running(SPIN) as job:
        watch, process = Watch(tmp_path), process_of(job)
        task = asyncio.create_task(source.record(process, Options(), watch.session))
        await watch.reaches(State.RECORDING)
        await eventually(lambda: len(looks) > 2)
        patience.waited(job.pid, os.getuid(), 0.0, 1.0)
        asked.clear()
        await eventually(lambda: len(asked) > 8 or task.done())
        assert not task.done()
        watch.session.stop.set()
        await watch.reaches(State.DRAINING)
        asked.clear()
        await eventually(lambda: len(asked) > 4 or task.done())
        assert not task.done()
        now[0] += PROC_STUCK_SECONDS
        recording = await task
    assert (recording.state, recording.reason) == (State.DRAINING, Reason.NONE), recording.message
    decoded(recording)


async def test_one_that_may_hold_no_more_writes_what_it_has(
    source: PySpySource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter(range(1000))
    full, share = tool.full, tool.FULL_SHARE
    monkeypatch.setattr(tool, "FULL_SHARE", 0.0)
    monkeypatch.setattr(tool, "full", lambda pid, native: next(looks) > 5 and full(pid, native))  # after a few samples
    with running(SPIN) as job:
        with monkeypatch.context() as usual:
            usual.setattr(tool, "FULL_SHARE", share)
            assert not full(job.pid, native=False)
        recording = await source.record(process_of(job), LONG, Watch(tmp_path).session)
    assert (recording.state, recording.reason) == (State.DRAINING, Reason.TRUNCATED)
    assert "more than profd-sampler may hold" in recording.message
    assert recording.files


async def test_stop_before_the_agreed_start(source: PySpySource, tmp_path: Path) -> None:
    with running(SPIN) as job:
        watch = Watch(tmp_path)
        options = dataclasses.replace(SHORT, start_at_ns=time.time_ns() + 3_600_000_000_000)
        task = asyncio.create_task(source.record(process_of(job), options, watch.session))
        await watch.reaches(State.ARMED)
        watch.session.stop.set()
        recording = await task
        assert pyspy_of(process_of(job)) == []
    assert (recording.state, recording.reason) == (State.CANCELLED, Reason.CANCELLED_BY_USER)
    assert recording.files == []


async def test_agreed_start(source: PySpySource, tmp_path: Path) -> None:
    with running(SPIN) as job:
        start = time.time_ns() + 300_000_000
        options = dataclasses.replace(SHORT, start_at_ns=start)
        recording = await sampled(source, process_of(job), options, Watch(tmp_path))
    assert recording.start_ns is not None
    assert recording.start_ns >= start
    decoded(recording)


async def test_target_that_ends_in_the_window(source: PySpySource, tmp_path: Path, looks: list[int]) -> None:
    with running(UNTIL_TOLD) as job:
        watch = Watch(tmp_path)
        task = asyncio.create_task(source.record(process_of(job), LONG, watch.session))
        await watch.reaches(State.RECORDING)
        await eventually(lambda: len(looks) > 2)  # some samples; nothing depends on how many
        assert job.stdin is not None
        job.stdin.close()
        job.wait()
        job.stdin = None
        recording = await task
    assert recording.reason is Reason.TARGET_ENDED
    assert str(job.pid) in recording.message
    if recording.state is State.DRAINING:
        decoder, rows = decoded(recording)
        assert rows or decoder.findings.warnings  # it was not looked at once more before its end
    else:
        assert recording.state is State.FAILED


async def test_target_that_has_ended(source: PySpySource, tmp_path: Path) -> None:
    with running(SPIN) as job:
        process = process_of(job)
    recording = await source.record(process, SHORT, Watch(tmp_path).session)
    assert (recording.state, recording.reason) == (State.FAILED, Reason.TARGET_ENDED)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("native", [True, False])
async def test_killed_py_spy_leaves_its_target_running(source: PySpySource, tmp_path: Path, native: bool) -> None:
    count = counter_file(tmp_path)
    with running(COUNTER, str(count)) as job:
        process = process_of(job)
        for attempt in range(2):
            folder = tmp_path / str(attempt)
            folder.mkdir()
            watch = Watch(folder)
            options = dataclasses.replace(LONG, native=native, sample_hz=500)
            task = asyncio.create_task(source.record(process, options, watch.session))
            await watch.reaches(State.RECORDING)
            (pyspy,) = pyspy_of(process)
            os.kill(pyspy.id.pid, signal.SIGKILL)
            recording = await task
            assert (recording.state, recording.reason) == (State.FAILED, Reason.SOURCE_FAILED)
            assert "SIGKILL" in recording.message
            seen = count_in(count)
            await eventually(lambda seen=seen: count_in(count) > seen)


async def test_process_left_stopped_is_continued(tmp_path: Path) -> None:
    """What a tracer that was killed at the wrong moment leaves behind."""
    count = counter_file(tmp_path)
    with running(COUNTER, str(count)) as job:
        target = Target(process_of(job))
        os.kill(job.pid, signal.SIGSTOP)
        until(target.stopped, "the target to stop")
        assert await target.resume_if_left_stopped()
        seen = count_in(count)
        await eventually(lambda: count_in(count) > seen)


async def test_stopped_process_is_refused_and_stays_stopped(source: PySpySource, tmp_path: Path) -> None:
    with running(SPIN) as job:
        process = process_of(job)
        os.kill(job.pid, signal.SIGSTOP)
        until(Target(process).stopped, "the target to stop")
        recording = await source.record(process, SHORT, Watch(tmp_path).session)
        assert recording.state is State.REFUSED
        assert "kill -CONT" in recording.message
        assert Target(process).stopped()


async def test_cancelled_recording_leaves_nothing_running(source: PySpySource, tmp_path: Path) -> None:
    with running(SPIN) as job:
        process = process_of(job)
        watch = Watch(tmp_path)
        task = asyncio.create_task(source.record(process, LONG, watch.session))
        await watch.reaches(State.RECORDING)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert pyspy_of(process) == []
        assert job.poll() is None


async def test_process_that_is_no_python(source: PySpySource, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        try:
            until(lambda: "sleep" in (ProcessTable().get(sleeper.pid) or process_of_self()).command, "exec")
            process = seen(sleeper.pid)
            assert not source.offer(process).can
            # Where something only looked like Python, py-spy's own words are explained.
            recording = await source.record(dataclasses.replace(process, python=True), SHORT, Watch(tmp_path).session)
            assert (recording.state, recording.reason) == (State.REFUSED, Reason.NO_SOURCE)
            assert "py-spy" in recording.message
        finally:
            sleeper.kill()


def process_of_self() -> Process:
    return seen(os.getpid())


async def test_file_is_bounded(source: PySpySource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_module, "FILE_BYTES_MAX", 2048)
    with running(SPIN) as job:
        recording = await sampled(source, process_of(job), SHORT, Watch(tmp_path))
    # On a starved machine so few samples are taken that they fit.
    if recording.reason is not Reason.NONE:
        assert recording.reason is Reason.TRUNCATED
        decoder, rows = decoded(recording)
        assert rows
        assert decoder.findings.truncated
        assert any(row[2] == NO_END for row in rows)


DAEMON = """
import asyncio, sys
from pathlib import Path
from profd.model.capture import Options
from profd.sources.base import Session
from profd.sources.pyspy.source import PySpySource
from profd.targets.table import ProcessTable

async def main():
    source = PySpySource()
    await source.open()
    session = Session("c", Path(sys.argv[2]), asyncio.Event(), lambda state, doing: print(state.label, flush=True))
    process = ProcessTable().get(int(sys.argv[1]))
    await source.record(process, Options(duration_ns=120_000_000_000, native=True), session)

asyncio.run(main())
"""


async def test_death_of_the_daemon_ends_py_spy_and_not_the_target(tmp_path: Path) -> None:
    count = counter_file(tmp_path)
    with running(COUNTER, str(count)) as job:
        process = process_of(job)
        command = [sys.executable, "-c", DAEMON, str(job.pid), str(tmp_path)]
        daemon = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert daemon.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await daemon.stdout.readline() != b"recording\n":
                assert daemon.returncode is None
        daemon.kill()
        await daemon.wait()
        await eventually(lambda: pyspy_of(process) == [])
        seen = count_in(count)
        await eventually(lambda: count_in(count) > seen)
