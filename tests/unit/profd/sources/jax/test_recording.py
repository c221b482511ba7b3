"""Recordings through servers that behave, and through those that do not."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from profd.limits import PROC_WAIT_LOOP_SECONDS
from profd.model.capture import Options, Reason, Recording, State
from profd.sources.base import Session
from profd.sources.jax import finder, planning, recording, service
from profd.sources.jax.finder import Finder
from profd.sources.jax.listeners import Listening, ListeningPort
from profd.sources.jax.planning import SECOND
from profd.sources.jax.source import JaxSource
from profd.targets import guarded
from profd.targets.process import Process, ProcessId
from profd.targets.table import ProcessTable
from profproto.profiler import profiler_pb2 as pb

from tests.support import other_program, profiler_server
from tests.support.captures import LONG
from tests.support.other_program import needs_setuid
from tests.support.profiler_server import FakeProfiler, answering, busy, empty, garbage, held, serving, whole
from tests.support.python_jobs import seen
from tests.support.waiting import eventually

SHORT = Options(duration_ns=SECOND // 50)


class Table(ProcessTable):
    """Says that every process lives."""

    def alive(self, process: ProcessId) -> bool:
        return True


def process_of_self() -> Process:
    """Which is asked as if it were a job."""
    return seen(os.getpid())


class Bench:
    """A source whose finder knows one port."""

    def __init__(self, folder: Path, port: int, job: Process | None = None, journal: Path | None = None) -> None:
        self.job = replace(job or process_of_self(), xla=True)
        where = Listening((ListeningPort(port, f"ipv4:127.0.0.1:{port}", frozenset((port,))),))
        self.source = JaxSource(Finder(look=lambda _: where), ProcessTable() if job else Table(), journal)
        self.said: list[tuple[State, str]] = []
        self.session = Session("c1", folder, asyncio.Event(), lambda state, doing: self.said.append((state, doing)))

    async def record(self, options: Options = SHORT) -> Recording:
        async with asyncio.timeout(LONG):
            return await self.source.record(self.job, options, self.session)

    def words(self) -> str:
        return " ".join(doing for _, doing in self.said)


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose process it is does not matter here, nor how slow the machine is."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(finder, "PROBE_SECONDS", LONG)


async def test_a_port_that_is_another_s_behind_the_connection_is_asked_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a port that another process has taken by the time of the connection WHEN recorded THEN it is not asked."""
    monkeypatch.setattr(recording, "_DEATH_SECONDS", 0.0)
    fake = FakeProfiler(whole)
    with serving(fake) as port:
        bench, looks = Bench(tmp_path, port), 0

        def look(_: Process) -> Listening:
            nonlocal looks
            looks += 1
            return Listening((ListeningPort(port, f"ipv4:127.0.0.1:{port}", frozenset((looks,))),))

        bench.source = JaxSource(Finder(look=look), Table())
        brought = await bench.record()
    assert (brought.state, brought.reason) == (State.FAILED, Reason.SOURCE_FAILED)
    assert f"port {port} is not its own any more" in brought.message
    assert not fake.requests


async def test_what_a_process_says_that_misses_a_short_look_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy host: it has not ended."""
    monkeypatch.setattr(guarded, "patience", guarded.Patience())

    def late(fake: FakeProfiler, request: pb.ProfileRequest, context: grpc.ServicerContext) -> bytes:
        guarded.patience.waited(os.getpid(), os.getuid(), 0.0, PROC_WAIT_LOOP_SECONDS)
        return whole(fake, request, context)

    with serving(FakeProfiler(late)) as port:
        brought = await Bench(tmp_path, port).record()
    assert (brought.state, brought.reason) == (State.DRAINING, Reason.NONE), brought.message


async def test_one_window(tmp_path: Path) -> None:
    fake = FakeProfiler(whole)
    with serving(fake) as port:
        bench = Bench(tmp_path, port)
        brought = await bench.record()
    (request,) = fake.requests
    assert (request.opts.version, request.opts.duration_ms, request.emit_xspace) == (1, 20, True)
    assert (request.opts.host_tracer_level, request.opts.python_tracer_level) == (2, 0)
    assert (brought.state, brought.reason) == (State.DRAINING, Reason.NONE)
    (file,) = brought.files
    assert file.format == "xspace"
    assert Path(file.path).read_bytes() == f"session {request.session_id}".encode()
    assert brought.start_ns is not None
    assert brought.end_ns is not None
    assert brought.start_ns < brought.end_ns
    assert {phase.name for phase in brought.waterfall} == {"lead", "window", "collecting"}
    assert brought.cost.how == "measured"
    assert brought.not_honoured == brought.warnings == []
    assert [state for state, _ in bench.said] == sorted(state for state, _ in bench.said)


async def test_stacks_are_asked_for(tmp_path: Path) -> None:
    fake = FakeProfiler(whole)
    with serving(fake) as port:
        await Bench(tmp_path, port).record(Options(duration_ns=SECOND // 50, stacks=True, shapes=True))
    assert fake.requests[0].opts.python_tracer_level == 1


async def test_a_long_window_is_several_and_the_gaps_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "WINDOW_NS", SECOND // 20)
    monkeypatch.setattr(planning, "JAX_WINDOWS_MAX", 1000)  # back to back
    fake = FakeProfiler(whole)
    with serving(fake) as port:
        bench = Bench(tmp_path, port)
        kept: list[int] = []
        bench.session.keep = lambda files: kept.append(len(files))
        task = asyncio.create_task(bench.record(Options(duration_ns=50 * SECOND)))
        await eventually(lambda: len(fake.requests) > 2)
        bench.session.stop.set()
        brought = await task
    assert len(brought.files) == len({request.session_id for request in fake.requests}) == len(fake.requests)
    assert brought.state is State.DRAINING
    assert kept == list(range(1, len(brought.files) + 1))  # each is there for a retry once it is whole
    assert any("between them" in text for text in brought.warnings)
    by_name = {phase.name: phase.duration_ns for phase in brought.waterfall}
    assert brought.start_ns is not None
    assert brought.end_ns is not None
    assert by_name["gaps"] + by_name["window"] == brought.end_ns - brought.start_ns
    # The next estimate knows what was seen.
    assert bench.source.plan(bench.job, SHORT).events is not None


async def test_a_forced_long_window_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "WINDOW_NS", SECOND // 100)
    fake = FakeProfiler(whole)
    with serving(fake) as port:
        brought = await Bench(tmp_path, port).record(Options(duration_ns=SECOND // 10, force=True))
    assert [request.opts.duration_ms for request in fake.requests] == [100]
    assert len(brought.files) == 1


async def test_a_stop_terminates_the_session_and_keeps_its_data(tmp_path: Path) -> None:
    fake = FakeProfiler(whole)
    with serving(fake) as port:
        bench = Bench(tmp_path, port)
        recording = asyncio.create_task(bench.record(Options(duration_ns=50 * SECOND, force=True)))
        await eventually(lambda: bool(fake.requests))
        bench.session.stop.set()
        brought = await recording
    assert (brought.state, brought.reason, len(brought.files)) == (State.DRAINING, Reason.NONE, 1)


async def test_a_stop_ends_an_open_ended_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "WINDOW_NS", SECOND // 50)
    fake = FakeProfiler(whole)
    with serving(fake) as port:
        bench = Bench(tmp_path, port)
        recording = asyncio.create_task(bench.record(Options()))
        await eventually(lambda: len(fake.requests) > 2)
        bench.session.stop.set()
        brought = await recording
    assert brought.state is State.DRAINING
    assert len(brought.files) >= 2


async def test_a_stop_before_the_start(tmp_path: Path) -> None:
    fake = FakeProfiler(whole)
    with serving(fake) as port:
        bench = Bench(tmp_path, port)
        ahead = Options(duration_ns=SECOND, start_at_ns=time.time_ns() + 3600 * SECOND)
        recording = asyncio.create_task(bench.record(ahead))
        await eventually(lambda: bool(bench.said))
        bench.session.stop.set()
        brought = await recording
    assert (brought.state, brought.reason) == (State.CANCELLED, Reason.CANCELLED_BY_USER)
    assert fake.requests == []


async def test_collecting_is_told_and_bounded_after_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "STOP_SECONDS", 0.1)
    monkeypatch.setattr(recording, "_TELL_SECONDS", 0.02)
    fake = FakeProfiler(held)
    with serving(fake) as port:
        bench = Bench(tmp_path, port)
        task = asyncio.create_task(bench.record())
        await eventually(fake.collecting.is_set)
        await eventually(lambda: "hands over" in bench.words())
        bench.session.stop.set()
        brought = await task
    assert (brought.state, brought.reason, brought.files) == (State.FAILED, Reason.TIMEOUT, [])


async def test_collecting_is_bounded_without_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_COLLECT_BASE_SECONDS", 0.1)
    with serving(FakeProfiler(held)) as port:
        brought = await Bench(tmp_path, port).record()
    assert (brought.state, brought.reason) == (State.FAILED, Reason.TIMEOUT)
    assert "still be collecting" in brought.message


async def test_another_profiler_is_busy(tmp_path: Path) -> None:
    with serving(FakeProfiler(busy)) as port:
        brought = await Bench(tmp_path, port).record()
    assert (brought.state, brought.reason) == (State.BUSY, Reason.OTHER_PROFILER)


async def test_a_capture_of_ours_is_busy(tmp_path: Path) -> None:
    fake = FakeProfiler(held)
    with serving(fake) as port:
        bench = Bench(tmp_path, port)
        first = asyncio.create_task(bench.record())
        await eventually(fake.collecting.is_set)
        assert bench.source.offer(bench.job).why_code is Reason.CAPTURE_RUNNING
        second = await bench.record()
        assert (second.state, second.reason) == (State.BUSY, Reason.CAPTURE_RUNNING)
        fake.released.set()
        assert (await first).state is State.DRAINING


async def test_an_idle_process_has_no_events(tmp_path: Path) -> None:
    with serving(FakeProfiler(empty)) as port:
        brought = await Bench(tmp_path, port).record()
    assert (brought.state, brought.reason, brought.files) == (State.FAILED, Reason.NO_FILE, [])
    assert list(tmp_path.iterdir()) == []


async def test_an_answer_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = [(name, 16 if name == "grpc.max_receive_message_length" else value) for name, value in service._OPTIONS]
    monkeypatch.setattr(service, "_OPTIONS", small)
    with serving(FakeProfiler(whole)) as port:
        brought = await Bench(tmp_path, port).record()
    assert (brought.state, brought.reason) == (State.FAILED, Reason.OVER_LIMIT)


async def test_a_recording_beyond_its_limit_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "JAX_RECORDING_BYTES_MAX", 1)
    monkeypatch.setattr(planning, "WINDOW_NS", SECOND // 50)
    with serving(FakeProfiler(whole)) as port:
        brought = await Bench(tmp_path, port).record(Options(duration_ns=SECOND))
    assert (brought.state, brought.reason, len(brought.files)) == (State.DRAINING, Reason.OVER_LIMIT, 1)


async def test_an_answer_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_DEATH_SECONDS", 0.0)
    with serving(FakeProfiler(garbage)) as port:
        brought = await Bench(tmp_path, port).record()
    assert (brought.state, brought.reason) == (State.FAILED, Reason.SOURCE_FAILED)
    assert "not a ProfileResponse" in brought.message


async def test_no_server_any_more(tmp_path: Path) -> None:
    with answering(b"") as port:
        brought = await Bench(tmp_path, port).record()
    assert (brought.state, brought.reason) == (State.REFUSED, Reason.NO_SOURCE)
    assert "start_server" in brought.message


async def test_a_process_that_dies_while_it_hands_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "WINDOW_NS", SECOND // 50)
    program = [sys.executable, profiler_server.__file__]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        assert job.stdout is not None
        port = int(job.stdout.readline())
        target = seen(job.pid)
        bench = Bench(tmp_path, port, job=Process(target.id, 1, target.uid, target.gid, "me", "job", xla=True))
        brought = await bench.record(Options(duration_ns=50 * SECOND))
    assert (brought.state, brought.reason) == (State.DRAINING, Reason.TARGET_ENDED)
    assert [Path(file.path).name for file in brought.files] == ["window-001.xplane.pb"]


@needs_setuid
@pytest.mark.parametrize("word", ["setuid", "exec"])
async def test_what_another_program_answers_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setattr(planning, "WINDOW_NS", SECOND // 50)
    with other_program.target() as target:

        def answer(fake: FakeProfiler, request: pb.ProfileRequest, context: grpc.ServicerContext) -> bytes:
            if len(fake.requests) == 2:
                target.say(word)
            return whole(fake, request, context)

        fake = FakeProfiler(answer)
        with serving(fake) as port:
            bench = Bench(tmp_path, port, job=target.process())
            brought = await bench.record(Options(duration_ns=50 * SECOND))
    assert (brought.state, brought.reason) == (State.DRAINING, Reason.TARGET_ENDED)
    assert "another program" in brought.message
    assert [path.name for path in tmp_path.iterdir()] == ["window-001.xplane.pb"]
    assert len(fake.requests) == 2


@needs_setuid
async def test_another_program_is_asked_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = recording.JaxRecorder._wait_for_start
    with other_program.target() as target:

        async def wait(self: recording.JaxRecorder) -> None:
            await waits(self)
            target.say("setuid")

        monkeypatch.setattr(recording.JaxRecorder, "_wait_for_start", wait)
        fake = FakeProfiler(whole)
        with serving(fake) as port:
            brought = await Bench(tmp_path, port, job=target.process()).record()
    assert (brought.state, brought.reason) == (State.FAILED, Reason.TARGET_ENDED)
    assert fake.requests == []
