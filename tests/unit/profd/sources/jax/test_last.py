"""The last seconds, through servers that behave, and through those that do not."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import cast

import grpc
import pytest
from profd.fairness.few import Few
from profd.fairness.rates import Rates
from profd.fairness.shares import Holder
from profd.model.capture import Options, Reason, Recording, State
from profd.sources.jax import finder, last, planning, recording, service, source
from profd.sources.jax.listeners import ListeningPort, listening
from profd.sources.jax.planning import SECOND
from profd.sources.jax.source import JaxSource
from profd.targets.identity import Accepted
from profd.targets.process import Process
from profproto.profiler import profiler_pb2 as pb

from tests.support import other_program
from tests.support.captures import LONG
from tests.support.other_program import needs_setuid
from tests.support.profiler_server import FakeProfiler, response, serving, whole
from tests.support.python_jobs import seen
from tests.support.waiting import eventually
from tests.unit.profd.sources.jax.test_recording import Bench, process_of_self

LAST = Options(last_ns=SECOND // 10)


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose process it is does not matter here, nor how slow the machine is; windows are short."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(finder, "PROBE_SECONDS", LONG)
    monkeypatch.setattr(planning, "WINDOW_NS", SECOND // 50)
    monkeypatch.setattr(last, "_JUDGED", 1 << 30)


def numbered(fake: FakeProfiler, number: int) -> bytes:
    return response(f"snapshot {number}".encode())


@needs_setuid
async def test_another_program_is_neither_asked_nor_stopped(tmp_path: Path) -> None:
    with other_program.target() as target:

        def snapshots(fake: FakeProfiler, number: int) -> bytes:
            if number == 2:
                target.say("setuid")
            return numbered(fake, number)

        fake = FakeProfiler(whole, snapshots=snapshots)
        with serving(fake) as port:
            bench = Bench(tmp_path, port, job=target.process())
            brought = await bench.record(LAST)
    assert (brought.state, brought.reason) == (State.DRAINING, Reason.TARGET_ENDED)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["snapshot 1"]
    assert fake.taken == 2
    assert fake.continuous


async def test_who_listens_there_afterwards_is_told_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's server may have the port by then: its snapshots are not ours to fetch, nor its session to end."""
    monkeypatch.setattr(planning, "WINDOW_NS", SECOND)
    monkeypatch.setattr(recording, "_DEATH_SECONDS", 0.0)
    fake, theirs = FakeProfiler(whole, snapshots=numbered), FakeProfiler(whole, snapshots=numbered)
    theirs.continuous = True
    with serving(fake) as port:
        bench = Bench(tmp_path, port)
        running = asyncio.create_task(bench.record(Options(last_ns=SECOND)))
        await eventually(lambda: len(list(tmp_path.glob("snapshot-*"))) == 1)
    with serving(theirs, port):
        brought = await running
    assert (brought.state, brought.reason) == (State.DRAINING, Reason.SOURCE_FAILED)
    assert [path.read_text() for path in tmp_path.glob("snapshot-*")] == ["snapshot 1"]
    assert (theirs.asked, theirs.taken, theirs.requests) == (0, 0, [])
    assert theirs.continuous


async def test_what_came_last_is_kept_and_the_rest_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_TELL_SECONDS", LONG)
    fake = FakeProfiler(whole, snapshots=numbered)
    kept: list[int] = []
    with serving(fake) as port:
        bench = Bench(tmp_path, port)
        bench.session.keep = lambda files: kept.append(len(files))
        running = asyncio.create_task(bench.record(LAST))
        await eventually(lambda: fake.taken >= 12)
        bench.session.stop.set()
        brought = await running
    assert (brought.state, brought.reason) == (State.DRAINING, Reason.NONE)
    assert not fake.continuous
    (request,) = fake.requests
    assert (request.opts.version, request.opts.host_tracer_level) == (1, 2)
    contents = [Path(file.path).read_text() for file in brought.files]
    assert contents == [f"snapshot {number}" for number in range(fake.taken - len(contents) + 1, fake.taken + 1)]
    assert 1 <= len(contents) < fake.taken
    assert sorted(path.name for path in tmp_path.iterdir()) == [Path(file.path).name for file in brought.files]
    assert kept[-1] == len(contents)
    assert {phase.name for phase in brought.waterfall} >= {"lead", "let go", "window", "collecting"}
    assert f"{fake.taken} snapshots" in brought.cost.detail
    assert {state for state, _ in bench.said} == {State.RECORDING}
    assert "hands over" not in bench.words()  # a line for each snapshot says nothing


@pytest.mark.parametrize(
    ("last_ns", "let_go_ns", "window_ns", "gaps_ns"),
    [
        (45, 70, 50, 10),  # they begin in a window
        (60, 70, 50, 10),  # with one
        (68, 62, 50, 18),  # before one
        (30, 100, 25, 5),
    ],
)
def test_the_gap_that_the_last_seconds_begin_in_is_one_of_theirs(
    tmp_path: Path, last_ns: int, let_go_ns: int, window_ns: int, gaps_ns: int
) -> None:
    bench = Bench(tmp_path, 1)
    cut = planning.windows(Options(last_ns=last_ns))
    accepted = Accepted(bench.job.id, bench.job.uid)
    recorder = last.LastSeconds(
        bench.job, ListeningPort(1, "", frozenset()), LAST, cut, bench.session, accepted, Few(1, 1).of(0)
    )
    recorder._first_ns = 1000
    recorder._windows = [recording.Window(began, began + 25, began + 35, None) for began in (1000, 1035, 1070, 1105)]
    recorder._let_go(1130 - last_ns)
    brought = Recording()
    recorder._describe(brought, 1000)
    phases = {phase.name: phase.duration_ns for phase in brought.waterfall}
    assert (phases["let go"], phases["window"], phases["gaps"]) == (let_go_ns, window_ns, gaps_ns)
    assert window_ns + gaps_ns >= last_ns


async def test_a_duration_ends_it(tmp_path: Path) -> None:
    fake = FakeProfiler(whole, snapshots=numbered)
    with serving(fake) as port:
        brought = await Bench(tmp_path, port).record(Options(duration_ns=SECOND // 10, last_ns=SECOND))
    assert len(brought.files) == fake.taken > 1
    assert not fake.continuous


class Owed:
    """A rate that is used up by so many bytes, for long."""

    def __init__(self, burst: int) -> None:
        self.users: set[int] = set()
        self._left = burst

    def owe(self, holder: Holder, count: int) -> float:
        self.users.add(holder.uid)
        self._left -= count
        return LONG if self._left < 0 else 0.0


async def test_snapshots_beyond_the_rate_of_their_user_come_later(tmp_path: Path) -> None:
    """The last one is fetched at once."""
    fake = FakeProfiler(whole, snapshots=numbered)
    with serving(fake) as port:
        bench = Bench(tmp_path, port)
        owed = Owed(3 * len(numbered(fake, 1)))
        bench.source._handed = cast(Rates, owed)
        running = asyncio.create_task(bench.record(LAST))
        await eventually(lambda: "processes of one user may hand over 64 MiB a second" in bench.words())
        assert fake.taken == 4
        bench.session.stop.set()
        brought = await running
    assert fake.taken == 5
    assert (brought.state, brought.reason) == (State.DRAINING, Reason.NONE)
    assert owed.users == {os.getuid()}


async def test_a_server_without_it_is_refused_and_told_of_the_versions(tmp_path: Path) -> None:
    with serving(FakeProfiler(whole)) as port:
        brought = await Bench(tmp_path, port).record(LAST)
    assert (brought.state, brought.reason) == (State.REFUSED, Reason.NOT_HONOURED)
    assert "jax 0.10.2 and tensorflow 2.21 have it" in brought.message
    assert list(tmp_path.iterdir()) == []


async def test_somebody_elses_session_is_busy(tmp_path: Path) -> None:
    """It is left alone, and goes on."""
    fake = FakeProfiler(whole, snapshots=numbered)
    fake.continuous = True
    with serving(fake) as port:
        brought = await Bench(tmp_path, port).record(LAST)
    assert (brought.state, brought.reason) == (State.BUSY, Reason.OTHER_PROFILER)
    assert fake.continuous


async def test_a_session_that_somebody_ends_meanwhile(tmp_path: Path) -> None:
    def ended(fake: FakeProfiler, number: int) -> bytes:
        fake.continuous = number < 3
        return numbered(fake, number)

    with serving(FakeProfiler(whole, snapshots=ended)) as port:
        brought = await Bench(tmp_path, port).record(Options(last_ns=SECOND * 20))
    assert brought.reason is Reason.SOURCE_FAILED
    assert len(brought.files) == 3
    assert "No continuous profiling session found" in brought.message


async def test_who_hands_over_longer_than_he_records_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last, "_JUDGED", 3)
    monkeypatch.setattr(last.LastSeconds, "_collecting_ns", 3600 * SECOND)  # as if it had been so far
    fake = FakeProfiler(whole, snapshots=numbered)
    with serving(fake) as port:
        brought = await Bench(tmp_path, port).record(Options(last_ns=SECOND * 20))
    assert brought.reason is Reason.OVER_LIMIT
    assert "handing it over takes longer than recording it" in brought.message
    assert not fake.continuous


async def test_with_force_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last, "_JUDGED", 1)
    monkeypatch.setattr(last.LastSeconds, "_collecting_ns", 3600 * SECOND)
    with serving(FakeProfiler(whole, snapshots=numbered)) as port:
        asked = Options(duration_ns=SECOND // 4, last_ns=SECOND // 10, force=True)
        brought = await Bench(tmp_path, port).record(asked)
    assert brought.reason is Reason.NONE


async def test_a_cancelled_recording_leaves_no_session(tmp_path: Path) -> None:
    fake = FakeProfiler(whole, snapshots=numbered)
    with serving(fake) as port:
        running = asyncio.create_task(Bench(tmp_path, port).record(LAST))
        await eventually(lambda: fake.taken >= 2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert running.cancelled()
        assert not fake.continuous
        assert not (tmp_path / last.NOTE).exists()


def noted(journal: Path, name: str, text: str) -> Path:
    """What a daemon leaves behind that is killed."""
    folder = journal / "c1" / name
    folder.mkdir(parents=True)
    (folder / last.NOTE).write_text(text)
    return folder / last.NOTE


def named(process: Process) -> str:
    return f"{process.id.pid}-{process.id.start_ticks}"


def at(port: int, job: Process) -> ListeningPort:
    """The server of the job at that port, as the kernel tells."""
    return next(one for one in listening(job).listeners if one.port == port)


async def opened(journal: Path) -> None:
    source = JaxSource(journal=journal)
    await source.open()
    await source.close()


async def test_what_a_killed_daemon_left_is_ended_by_the_next(tmp_path: Path) -> None:
    """Of processes that live; notes that say nothing, or lead elsewhere, are only removed."""
    left, other = FakeProfiler(whole, snapshots=numbered), FakeProfiler(whole, snapshots=numbered)
    left.continuous = other.continuous = True
    me = process_of_self()
    with serving(left) as port, serving(other) as other_port:
        server, another = at(port, me), at(other_port, me)
        elsewhere = replace(another, address=f"dns:localhost:{other_port}")
        notes = [
            noted(tmp_path, named(me), last._told(server)),
            noted(tmp_path, "100-x", last._told(another)),
            noted(tmp_path, f"{os.getpid()}-1", last._told(another)),  # an earlier process of that pid
            noted(tmp_path, f"{os.getpid()}-{me.id.start_ticks:011}", last._told(elsewhere)),
            noted(tmp_path, "102-1", "{"),
            noted(tmp_path, "103-1", "[]"),
        ]
        await opened(tmp_path)
    assert not left.continuous
    assert other.continuous
    assert not any(path.exists() for path in notes)


async def test_a_server_that_does_not_answer_keeps_no_daemon_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its process is recorded when it has answered."""
    monkeypatch.setattr(service, "_TERMINATE_SECONDS", 2 * LONG)
    monkeypatch.setattr(source, "_LEFTOVERS_SECONDS", 0.01)
    answers, order = threading.Event(), list[str]()

    def asked(fake: FakeProfiler, request: pb.ProfileRequest, context: grpc.ServicerContext) -> bytes:
        order.append("asked")
        return whole(fake, request, context)

    def stopping() -> None:
        answers.wait(LONG)
        order.append("ended")

    fake = FakeProfiler(asked, snapshots=numbered, stopping=stopping)
    with serving(fake) as port:
        server = ListeningPort(port, f"ipv4:127.0.0.1:{port}", frozenset((port,)))  # as the bench's finder says
        noted(tmp_path, named(process_of_self()), last._told(server))
        bench = Bench(tmp_path, port, journal=tmp_path)
        async with asyncio.timeout(LONG):
            await bench.source.open()
        running = asyncio.create_task(bench.record())
        await asyncio.sleep(0)
        answers.set()
        brought = await running
        await bench.source.close()
    assert order == ["ended", "asked"]
    assert brought.reason is Reason.NONE


async def test_who_has_the_port_by_now_is_told_nothing(tmp_path: Path) -> None:
    """The process lives, and its server has gone: at its port another one may listen, of its own or of anybody."""
    me = process_of_self()
    with serving(FakeProfiler(whole)) as port:
        gone = at(port, me)
    later = FakeProfiler(whole, snapshots=numbered)
    later.continuous = True
    with serving(later) as port:
        address = f"ipv4:127.0.0.1:{port}"
        note = noted(tmp_path, named(me), last._told(ListeningPort(port, address, gone.sockets)))
        await opened(tmp_path)
        assert later.continuous
        assert not note.exists()
        # GIVEN a process that does not listen there at all
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as job:
            silent = seen(job.pid)
            noted(tmp_path, named(silent), last._told(at(port, me)))
            await opened(tmp_path)
            job.communicate()
    assert later.continuous


async def test_a_broken_connection_keeps_what_was_fetched(tmp_path: Path) -> None:
    def broken(fake: FakeProfiler, number: int) -> bytes:
        if number > 2:
            raise grpc.RpcError("no more")
        return numbered(fake, number)

    with serving(FakeProfiler(whole, snapshots=broken)) as port:
        brought = await Bench(tmp_path, port).record(Options(last_ns=SECOND * 20))
    assert brought.reason is Reason.SOURCE_FAILED
    assert len(brought.files) == 2
