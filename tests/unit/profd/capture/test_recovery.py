"""A capture that a daemon was recording when it died has one end, and nobody is told of another one before it."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from profd.attached.sdk.planning import DRAIN_ROUNDS, DRAIN_SECONDS, TORCH_STOP_SECONDS
from profd.capture.machine import Graces
from profd.capture.manager import CaptureManager
from profd.journal.journal import NOTE
from profd.model.capture import Loss, Reason, State
from profd.targets.process import ProcessId

from tests.support.captures import ALICE, LONG, ROOT, MemoryRecords, Rig, ended, request
from tests.support.waiting import eventually

WHO = ProcessId(100, 700)
LOST = [Loss("target", "arena_full", 2)]


@dataclass
class Killed:
    """What a killed daemon has left: a capture of one process, whose chunks had begun to arrive."""

    rig: Rig
    capture: str
    seen: list[State] = field(default_factory=list)  # by somebody who watches the capture

    @contextlib.asynccontextmanager
    async def next_daemon(
        self, drain_seconds: float = 0.0, salvaged: asyncio.Event | None = None
    ) -> AsyncIterator[CaptureManager]:
        """`salvaged`: its process has written a file of its own, which is taken, or not, when this is set."""
        manager, key = self.rig.manager(), (self.capture, WHO)
        await manager.open(*([{key}] if salvaged is None else [(), {key: salvaged}]))
        watching = asyncio.create_task(self._watch(manager))
        try:
            yield manager
        finally:
            await manager.close(drain_seconds)
            watching.cancel()

    async def _watch(self, manager: CaptureManager) -> None:
        async with contextlib.aclosing(manager.watch(ROOT, self.capture)) as states:
            async for record in states:
                if self.seen[-1:] != [record.state]:
                    self.seen.append(record.state)

    async def has_ended(self, manager: CaptureManager) -> tuple[State, Reason, str]:
        [target] = (await ended(manager, self.capture)).targets
        await eventually(lambda: self.seen[-1:] == [target.state])
        assert [state for state in self.seen if state.terminal] == [target.state]
        assert [action for action, *_ in self.rig.audit.lines].count("capture.end") == 1
        return target.state, target.reason, target.message


@pytest.fixture
async def killed(rig: Rig) -> AsyncIterator[Killed]:
    async with rig.running() as manager:
        capture = (await manager.start(ALICE, request(100))).id
        directory = (await rig.source.started(100)).directory
        (directory / "chunks.pfc").write_bytes(b"x")
        (directory / NOTE).write_text('{"files": {"chunks.pfc": "chunks"}}')
        as_it_died = MemoryRecords()
        as_it_died.kept = copy.deepcopy(rig.records.kept)
        yield Killed(Rig(rig.directory, rig.table, records=as_it_died), capture)


async def test_who_comes_back_is_stored_and_nobody_hears_of_a_failure(killed: Killed) -> None:
    async with killed.next_daemon() as manager:
        record = manager.get(ALICE, killed.capture)
        assert (record.state, record.finished_ns, manager.active) == (State.DRAINING, None, 1)
        assert "waiting for the process to come back" in record.targets[0].doing
        manager.returned(killed.capture, WHO)
        await eventually(lambda: "taking over" in record.targets[0].doing)
        manager.recovered(killed.capture, WHO, LOST)
        state, reason, _ = await killed.has_ended(manager)
        assert (state, reason) == (State.PARTIAL, Reason.DAEMON_RESTARTED)
        assert record.targets[0].lost == LOST
        manager.recovered(killed.capture, WHO, LOST)  # a second word means nothing
        manager.recovered("c-unknown", WHO, [])
        assert (record.state, record.targets[0].lost) == (State.PARTIAL, LOST)
        await eventually(lambda: not manager._held)


async def test_its_process_is_held_until_then(killed: Killed) -> None:
    async with killed.next_daemon() as manager:
        second = await manager.start(ALICE, request(100))
        assert (second.state, second.targets[0].reason) == (State.BUSY, Reason.CAPTURE_RUNNING)


def stays_away(killed: Killed, manager: CaptureManager) -> None:
    """Longer than the grace."""


def ends(killed: Killed, manager: CaptureManager) -> None:
    killed.rig.table.end(100)


def comes_in_part(killed: Killed, manager: CaptureManager) -> None:
    manager.recovered(killed.capture, WHO, None)


def is_never_done(killed: Killed, manager: CaptureManager) -> None:
    manager.returned(killed.capture, WHO)


@pytest.mark.parametrize("happens", [stays_away, ends, comes_in_part, is_never_done])
async def test_who_does_not_come_back_whole_leaves_what_there_is_for_a_retry(
    killed: Killed, happens: Callable[[Killed, CaptureManager], None]
) -> None:
    short = {"stays_away": "returning_ns", "is_never_done": "taking_over_ns"}.get(happens.__name__)
    if short is not None:
        killed.rig.graces = replace(killed.rig.graces, **{short: 1})
    async with killed.next_daemon() as manager:
        happens(killed, manager)
        state, reason, message = await killed.has_ended(manager)
        assert (state, reason) == (State.FAILED, Reason.DAEMON_RESTARTED)
        assert "profctl retry" in message
        manager.recovered(killed.capture, WHO, LOST)  # too late for this end, in time for the retry
        assert manager.get(ALICE, killed.capture).state is State.FAILED
        await manager.retry(ALICE, killed.capture)
        [target] = (await ended(manager, killed.capture)).targets
        assert (target.state, target.reason, target.lost) == (State.PARTIAL, Reason.DAEMON_RESTARTED, LOST)


async def test_who_has_ended_before_anything_had_come_leaves_nothing(killed: Killed) -> None:
    [file] = killed.rig.directory.rglob("chunks.pfc")
    file.write_bytes(b"")
    async with killed.next_daemon() as manager:
        ends(killed, manager)
        state, reason, message = await killed.has_ended(manager)
        assert (state, reason, "retry" in message) == (State.FAILED, Reason.DAEMON_RESTARTED, False)
        assert "how much is not known" in message
        await eventually(lambda: not file.parent.exists())


GONE = [Loss("ingest", "missing", 920), Loss("target", "dropped", 1)]


async def test_who_comes_back_without_any_of_it_tells_how_much_is_lost(killed: Killed) -> None:
    [file] = killed.rig.directory.rglob("chunks.pfc")
    file.write_bytes(b"")
    async with killed.next_daemon() as manager:
        manager.recovered(killed.capture, WHO, GONE)
        state, reason, message = await killed.has_ended(manager)
        assert (state, reason) == (State.FAILED, Reason.DAEMON_RESTARTED)
        assert "none of the 920 events" in message
        assert "retry" not in message
        assert manager.get(ALICE, killed.capture).targets[0].lost == GONE
        await eventually(lambda: not file.parent.exists())


async def test_who_comes_back_later_still_tells_it(killed: Killed) -> None:
    [file] = killed.rig.directory.rglob("chunks.pfc")
    file.write_bytes(b"")
    killed.rig.graces = replace(killed.rig.graces, returning_ns=1)
    async with killed.next_daemon() as manager:
        _, _, message = await killed.has_ended(manager)
        assert "nothing of it has arrived" in message
        for _ in range(2):  # a second word means nothing
            manager.recovered(killed.capture, WHO, GONE)
        [target] = manager.get(ALICE, killed.capture).targets
        assert "none of the 920 events" in target.message
        assert target.lost == GONE
        await eventually(lambda: not file.parent.exists())


async def test_who_tells_it_twice_of_what_can_be_retried_is_counted_once(killed: Killed) -> None:
    killed.rig.graces = replace(killed.rig.graces, returning_ns=1)
    async with killed.next_daemon() as manager:
        await killed.has_ended(manager)
        for _ in range(2):
            manager.recovered(killed.capture, WHO, LOST)
        await manager.retry(ALICE, killed.capture)
        [target] = (await ended(manager, killed.capture)).targets
        assert (target.state, target.lost) == (State.PARTIAL, LOST)


async def test_a_stop_does_not_end_what_ends_by_itself(killed: Killed) -> None:
    async with killed.next_daemon() as manager:
        assert manager.stop(ALICE, killed.capture).state is State.DRAINING
        manager.recovered(killed.capture, WHO, [])
        assert (await killed.has_ended(manager))[0] is State.PARTIAL


async def test_a_daemon_that_is_stopped_meanwhile_leaves_it_to_the_next(killed: Killed) -> None:
    async with killed.next_daemon(LONG):  # it does not wait for who has not come back
        pass
    assert not any(state.terminal for state in killed.seen)
    async with killed.next_daemon() as manager:
        manager.recovered(killed.capture, WHO, [])
        assert (await killed.has_ended(manager))[0] is State.PARTIAL


async def test_a_daemon_that_is_stopped_takes_over_who_has_come_back(killed: Killed) -> None:
    async with killed.next_daemon(LONG) as manager:
        manager.returned(killed.capture, WHO)
        record = manager.get(ALICE, killed.capture)
        await eventually(lambda: "taking over" in record.targets[0].doing)
        asyncio.get_running_loop().call_later(0.01, manager.recovered, killed.capture, WHO, [])
    assert record.state is State.PARTIAL


async def test_what_was_being_stored_waits_for_the_daemons_sockets(killed: Killed) -> None:
    [value] = killed.rig.records.kept.values()
    value["targets"][0] |= {"state": State.COLLATING, "files": [{"path": "chunks.pfc", "format": "chunks"}]}
    async with killed.next_daemon() as manager:
        await asyncio.sleep(0)
        assert not killed.rig.storing.begun.is_set()
        assert manager.get(ALICE, killed.capture).state is State.COLLATING
        manager.go_on()
        assert (await killed.has_ended(manager))[0] is State.STORED


async def test_what_nobody_waits_for_has_ended_at_once(killed: Killed) -> None:
    killed.rig.graces = Graces()
    async with killed.rig.running() as manager:
        [target] = manager.get(ALICE, killed.capture).targets
        assert (target.state, target.reason) == (State.FAILED, Reason.DAEMON_RESTARTED)


def test_a_take_over_is_given_the_time_that_it_may_take() -> None:
    assert Graces().taking_over_ns / 1e9 > TORCH_STOP_SECONDS + DRAIN_ROUNDS * DRAIN_SECONDS


@pytest.fixture
def written(killed: Killed) -> Path:
    """The directory that waits for the file that the process has written, and has nothing yet."""
    [chunks] = killed.rig.directory.rglob("chunks.pfc")
    chunks.unlink()
    (chunks.parent / NOTE).unlink()
    return chunks.parent


async def test_what_a_process_has_written_is_taken_before_its_capture_has_an_end(killed: Killed, written: Path) -> None:
    salvaged = asyncio.Event()
    async with killed.next_daemon(salvaged=salvaged) as manager:
        record = manager.get(ALICE, killed.capture)
        assert (record.state, record.finished_ns) == (State.DRAINING, None)
        assert "taking what the process has written" in record.targets[0].doing
        assert WHO in manager._held
        (written / "trace.json").write_text("x")
        (written / NOTE).write_text('{"files": {"trace.json": "chrome"}, "whole": true}')
        salvaged.set()
        state, reason, message = await killed.has_ended(manager)
        assert (state, reason) == (State.FAILED, Reason.DAEMON_RESTARTED)
        assert "profctl retry" in message
        await manager.retry(ALICE, killed.capture)
        [target] = (await ended(manager, killed.capture)).targets
        assert target.state is State.STORED


async def test_what_was_not_taken_is_nobodys(killed: Killed, written: Path) -> None:
    salvaged = asyncio.Event()
    salvaged.set()
    async with killed.next_daemon(salvaged=salvaged) as manager:
        state, reason, message = await killed.has_ended(manager)
        assert (state, reason, "retry" in message) == (State.FAILED, Reason.DAEMON_RESTARTED, False)
        await eventually(lambda: not written.exists() and not manager._held)


async def test_a_daemon_that_stops_meanwhile_leaves_it_to_the_next_one(killed: Killed, written: Path) -> None:
    async with killed.next_daemon(salvaged=asyncio.Event()):
        await eventually(lambda: killed.seen == [State.DRAINING])
    assert killed.seen == [State.DRAINING]
    assert not [action for action, *_ in killed.rig.audit.lines if action == "capture.end"]
    await test_what_a_process_has_written_is_taken_before_its_capture_has_an_end(killed, written)
