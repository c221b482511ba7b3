"""A process that writes its trace to a disk which does not answer when it is to be picked up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from profd import limits
from profd.capture.death import DeathWatch
from profd.disk.space import alone
from profd.gpu.lease_keeper import LeaseKeeper
from profd.journal.journal import Journal
from profd.model.capture import Options, Reason, State
from profd.sources.kineto import recording, salvage, wire
from profd.sources.kineto.leftovers import Leftover, Leftovers
from profd.sources.kineto.salvage import Salvage
from profd.sources.kineto.source import TRACE_DIRECTORY, KinetoSource
from profd.targets.process import Process, ProcessId
from profd.targets.table import ProcessTable

from tests.integration.kineto.conftest import session
from tests.support.dead_files import DeadFiles, dead_files, why_not
from tests.support.kineto_client import KinetoClient, write_trace
from tests.support.python_jobs import seen
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())
MALLORY = 61301
TOKEN = "993aa79f8069b17f685ca15c0d3bac04"
WHOLE = f'{{"trace_id": "{TOKEN}", "traceEvents": [{{"ph": "X"}}], "traceName": "x"}}'
OPTIONS = Options(duration_ns=100_000_000)
# Asks as libkineto does, and whatever it is told to write is there at once. It reads its answers: else its queue is
# full after ten of them, and no config gets in.
POLLS = """
asking = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
asking.bind("{directory}/{client}")
def ask():
    while True:
        try:
            asking.sendto(bytes.fromhex("{poll}"), socket.MSG_DONTWAIT, "{directory}/{server}")
        except OSError:
            pass
        time.sleep(0.05)
        try:
            while True: asking.recv(65536, socket.MSG_DONTWAIT)
        except OSError:
            pass
threading.Thread(target=ask, daemon=True).start()
"""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """libkineto's fixed lead and run loop are not ours to test here, and what hangs does so for ever."""
    monkeypatch.setattr(recording, "LEAD_NS", 50_000_000)
    monkeypatch.setattr(recording, "_SLACK_NS", 50_000_000)
    monkeypatch.setattr(limits, "ERRAND_SECONDS", 3.0)


@contextlib.asynccontextmanager
async def target(folder: Path, socket_dir: Path, *silent: str) -> AsyncIterator[tuple[DeadFiles, Process]]:
    socket_dir.chmod(0o1777)
    does = POLLS.replace("{directory}", str(socket_dir)).replace("{server}", wire.DAEMON_NAME)
    does = does.replace("{client}", f"{wire.CLIENT_PREFIX}{'0' * 8}-0000-0000-0000-{'0' * 12}")
    does = does.replace("{poll}", wire.poll(3, 0, (1,)).hex())
    with dead_files(folder, MALLORY, *silent, does=does) as dead:
        process = seen(dead.pid)
        environ = {"KINETO_USE_DAEMON": "1", TRACE_DIRECTORY: str(dead.folder)}
        yield dead, replace(process, environ=environ, framework="torch")


@pytest.mark.parametrize("silent", ["OPENDIR", "STATFS", "OPEN", "READ", "FLUSH"])
async def test_its_capture_ends_with_a_sentence(
    source: KinetoSource, socket_dir: Path, tmp_path: Path, silent: str
) -> None:
    async with target(socket_dir / "mount", socket_dir, silent) as (dead, process):
        begun, _ = session(tmp_path)
        result = await source.record(process, OPTIONS, begun)
        assert (result.state, result.reason) == (State.FAILED, Reason.TIMEOUT)
        assert "does not answer" in result.message
        assert str(dead.folder) in result.message
        assert not list(begun.directory.iterdir())
        # THEN the source still serves, and closes, with that file system as it is
        assert source.status()[0]
        await source.close()


async def test_others_are_recorded_meanwhile(
    source: KinetoSource, socket_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ERRAND_SECONDS", 600.0)
    (tmp_path / "traces").mkdir()
    async with target(socket_dir / "mount", socket_dir, "READ") as (_, process):
        begun, reports = session(tmp_path)
        hanging = asyncio.create_task(source.record(process, OPTIONS, begun))
        await eventually(lambda: State.DRAINING in reports.states or hanging.done())
        assert not hanging.done(), hanging.result()  # it is picked up, for ever
        with KinetoClient(socket_dir) as client:
            polling = asyncio.create_task(client.run(write_trace))
            own = seen(os.getpid())
            other, _ = session(tmp_path, "c2")
            environ = {"KINETO_USE_DAEMON": "1", TRACE_DIRECTORY: str(tmp_path / "traces")}
            result = await source.record(replace(own, environ=environ, framework="torch"), OPTIONS, other)
            polling.cancel()
        assert result.state is State.DRAINING, result.message
        assert not hanging.done()
        hanging.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await hanging
        assert not list(begun.directory.iterdir())


async def test_what_is_left_there_is_tried_again_later(socket_dir: Path, tmp_path: Path) -> None:
    async with target(socket_dir / "mount", socket_dir, "UNLINK") as (dead, process):
        leftovers = Leftovers(tmp_path)
        item = Leftover(dead.pid, process.id.start_ticks, MALLORY, str(dead.folder), "profd-1_1.json", time.time())
        leftovers.add(item)
        assert await leftovers.sweep(lambda process, since: True, lambda name: False) == 0
        assert len(leftovers) == 1


@dataclass(frozen=True)
class Left:
    """What a killed daemon has not taken: a whole trace of ours (of capture c2), and one on that disk (of c1)."""

    theirs: ProcessId
    ours: ProcessId
    leftovers: Leftovers
    journal: Journal
    there: Path  # where ours is to come


@contextlib.contextmanager
def left(socket_dir: Path, folder: Path, asked: float) -> Iterator[Left]:
    """`asked`: when the daemon had asked for both."""
    name = f"profd-{TOKEN}_7.json"
    (folder / name).write_text(WHOLE)
    ours, leftovers, journal = ProcessId(4194303, 1), Leftovers(folder), Journal(folder / "journal")
    socket_dir.chmod(0o711)
    with dead_files(socket_dir / "mount", MALLORY, "READ") as dead:
        process = seen(dead.pid)
        theirs = process.id
        leftovers.add(Leftover(dead.pid, theirs.start_ticks, MALLORY, str(dead.folder), "profd-1_1.json", asked))
        leftovers.add(Leftover(ours.pid, ours.start_ticks, os.geteuid(), str(folder), name, asked))
        journal.directory("c1", theirs)
        yield Left(theirs, ours, leftovers, journal, journal.directory("c2", ours))


async def test_what_a_killed_daemon_had_not_taken_waits_for_nobody_else_s(
    socket_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a trace of ours, behind one on that disk WHEN the next daemon begins THEN ours is taken, and not swept."""
    monkeypatch.setattr(limits, "ERRAND_SECONDS", 15.0)  # longer than all of it may take
    with left(socket_dir, tmp_path, asked=0.0) as found:
        assert await Salvage(found.leftovers, tmp_path / "journal", lambda uid: alone()).take() == 1
    assert (found.there / "trace.json").exists()


async def test_a_daemon_has_begun_before_such_a_trace_is_taken(
    socket_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a trace on that disk, and one elsewhere WHEN the next daemon begins THEN it serves while they are taken."""
    monkeypatch.setattr(limits, "ERRAND_SECONDS", 600.0)
    monkeypatch.setattr(salvage, "KINETO_SALVAGE_SECONDS", 600.0)
    with left(socket_dir, tmp_path, asked=time.time()) as found:
        theirs, ours = found.theirs, found.ours
        leases = LeaseKeeper(DeathWatch(ProcessTable()))
        source = KinetoSource(None, abstract=False, state_dir=tmp_path, leases=leases)
        opening = asyncio.create_task(source.open())
        await eventually(opening.done)
        assert set(source.salvaging) == {("c1", theirs), ("c2", ours)}
        await eventually(source.salvaging["c2", ours].is_set)
        assert found.journal.whole("c2", ours)
        # WHEN it is stopped meanwhile THEN nothing has become of the other one: the next daemon looks for it
        await source.close()
        assert not source.salvaging["c1", theirs].is_set()
        await leases.close()
        again = Leftovers(tmp_path)
        again.load()
        assert [item.uid for item in again.items()] == [MALLORY, os.geteuid()]
        assert set(Salvage(again, tmp_path / "journal", lambda uid: alone()).settled) == {("c1", theirs)}
