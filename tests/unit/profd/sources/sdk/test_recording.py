"""One recording of an agent that does as the test says; ingest and streamers are the test's, too."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from profd.agents.protocol import Kind
from profd.agents.registry import Registry
from profd.agents.server import AgentServer
from profd.capture.death import DeathWatch
from profd.capture.model import Loss, Options, RawFile, Reason, Recording, State
from profd.errors import Exhausted
from profd.gpu.holders import Holder, HolderKind
from profd.gpu.lease_keeper import LeaseKeeper
from profd.journal.journal import NOTE
from profd.limits import MiB
from profd.sources.base import Session
from profd.sources.sdk import handover, orphans, planning
from profd.sources.sdk.handover import Parts
from profd.sources.sdk.source import SdkSource
from profd.targets.process import Process, ProcessId
from profd.targets.table import ProcessTable
from profd.trust.identify import start_ticks

from tests.support.fake_agent import FakeAgent, memfd
from tests.support.waiting import PATIENCE_SECONDS, eventually

SECOND = 1_000_000_000
ME = ProcessId(os.getpid(), start_ticks(os.getpid()))


@dataclass
class TestIntake:
    """As `profd.ingest` describes it."""

    __test__ = False
    path: Path
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    losses: list[Loss] = field(default_factory=list)
    events: int = 1
    failure: str = ""
    closed: bool = False

    def close(self) -> None:
        self.closed = True


@dataclass
class TestDrain:
    """As `profd.ingest` describes it; `finish` waits for the test where it is told to."""

    __test__ = False
    intake: TestIntake
    size: int
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    problem: str = ""
    restarts: int = 0
    target_died: bool | None = None
    stuck: bool = False
    closed: bool = False

    async def finish(self, *, target_died: bool) -> None:
        self.target_died = target_died
        if self.stuck:
            await asyncio.Event().wait()
        if not self.problem:
            self.intake.finished.set()
        self.ended.set()

    def close(self) -> None:
        self.closed = True


class Rig:
    """A source over a real `agent.sock`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "journal" / "c1" / f"{ME.pid}-{ME.start_ticks}"
        self.folder.mkdir(parents=True)
        self.intakes: list[TestIntake] = []
        self.drains: list[TestDrain] = []
        self.prepare: Callable[[TestDrain], None] = lambda drain: None
        self.refuse: Exception | None = None
        self.unable = ""
        self.said: list[tuple[State, str]] = []
        self.kept: list[RawFile] = []
        self.recovered: list[tuple[str, ProcessId, list[Loss]]] = []
        self.stop = asyncio.Event()
        self.registry = Registry()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.path = folder / "agent.sock"
        listener.bind(str(self.path))
        listener.listen(16)
        self.server = AgentServer(listener, self.registry)
        self.server.open()
        self.leases = LeaseKeeper(DeathWatch(ProcessTable()))
        self.registry.on_disarmed, self.registry.on_greeted = self.leases.clear, self.leases.greeted
        self.source = SdkSource(self.registry, Parts(self, self, MiB), self.path, folder / "journal", self.leases)
        self.source.on_recovered = lambda capture, process, losses: self.recovered.append((capture, process, losses))

    # `Ingest` and `Streamers`

    async def expect(self, incarnation: int, epoch: int, uid: int, directory: Path) -> TestIntake:
        if self.refuse is not None:
            raise self.refuse
        assert (incarnation, uid) == (0xAA, os.getuid())
        self.intakes.append(TestIntake(directory / "chunks.pfc"))
        return self.intakes[-1]

    def why_not(self, uid: int, gid: int) -> str:
        return self.unable

    def drain(self, uid: int, gid: int, incarnation: int, epoch: int, fd: int) -> TestDrain:
        self.drains.append(TestDrain(self.intakes[-1], os.fstat(fd).st_size))
        self.prepare(self.drains[-1])
        return self.drains[-1]

    # the test's side

    @property
    def process(self) -> Process:
        found = ProcessTable().get(ME.pid)
        assert found is not None
        return found

    async def attach(self, **changes: object) -> FakeAgent:
        fake = FakeAgent(self.path)
        fake.hello(**changes)
        await fake.expect(Kind.WELCOME)
        return fake

    def record(
        self, made: asyncio.Future[None] | None = None, cuda: bool = False, **options: Any
    ) -> asyncio.Task[Recording]:
        session = Session(
            "c1",
            self.folder,
            self.stop,
            lambda state, doing: self.said.append((state, doing)),
            keep=self.kept.extend,
            made=made,
        )
        asked = Options(**{"duration_ns": 600 * SECOND, **options})
        return asyncio.create_task(self.source.record(replace(self.process, cuda=cuda), asked, session))

    async def armed(self, fake: FakeAgent, **fields: object) -> int:
        """Answer ARM; the epoch."""
        epoch = (await fake.expect(Kind.ARM)).epoch
        fd = memfd()
        fake.send(Kind.ARMED, epoch, fd, **{"first": 1_000, **fields})
        os.close(fd)
        return epoch


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    with tempfile.TemporaryDirectory(prefix="pd-", dir="/tmp") as name:
        found = Rig(Path(name))
        await found.source.open()
        try:
            yield found
        finally:
            await found.source.close()
            found.server.close()


async def test_a_capture_that_the_user_ends(rig: Rig) -> None:
    fake = await rig.attach(framework="torch 2.13.0")
    recording = rig.record()
    epoch = await rig.armed(fake, not_honoured="flops: no operators")
    await eventually(lambda: bool(rig.drains))
    assert rig.drains[0].size == MiB
    assert rig.source.offer(rig.process).busy
    [raw] = rig.kept
    assert (raw.path, raw.format) == (str(rig.folder / "chunks.pfc"), "chunks")
    [found] = orphans.find(rig.folder.parent.parent)
    assert found == (0xAA, epoch)
    rig.intakes[0].events = 50
    rig.intakes[0].losses = [Loss("target", "arena_full", 3)]

    rig.stop.set()
    assert (await fake.expect(Kind.STOP)).epoch == epoch
    fake.send(
        Kind.STOPPED, epoch, reason="stop", last=2_000, events=53, seconds="0.25", step_ns=110, step_ns_before=100,
        **{"seconds.ranges": "0.25", "not_honoured": "iterations: no steps"},
    )  # fmt: skip
    done = await recording
    assert (await fake.expect(Kind.RELEASE)).epoch == epoch
    assert (done.state, done.reason) == (State.DRAINING, Reason.NONE)
    assert done.files == rig.kept
    assert (done.start_ns, done.end_ns) == (1_000, 2_000)
    assert done.lost == [Loss("target", "arena_full", 3)]
    assert done.not_honoured == ["flops: no operators", "iterations: no steps"]
    assert (done.cost.how, done.cost.seconds, done.cost.step_ratio) == ("measured", 0.25, 1.1)
    assert done.versions == {"profclient": "0.1.0", "python": "3.11.7", "torch": "2.13.0"}
    assert [phase.name for phase in done.waterfall] == ["arm", "window", "stop", "drain"]
    assert rig.drains[0].target_died is False
    assert rig.intakes[0].closed
    assert rig.drains[0].closed
    assert not orphans.find(rig.folder.parent.parent)
    assert rig.source.statistics().seconds == {"ranges": 0.25}
    assert [state for state, _ in rig.said] == [State.ARMED, State.RECORDING, State.DRAINING]
    assert rig.source.offer(rig.process).can
    fake.close()


async def test_a_window_ends_by_itself(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record(duration_ns=SECOND // 50)
    epoch = await rig.armed(fake)
    await eventually(lambda: bool(rig.intakes))
    rig.intakes[0].events = 0
    await fake.expect(Kind.STOP)
    fake.send(Kind.STOPPED, epoch, reason="stop")
    done = await recording
    assert done.reason is Reason.NO_FILE
    assert done.message.startswith("nothing was recorded: no range or operator")
    assert "--samples 100hz" in done.message  # what to do about it
    fake.close()


async def test_the_agent_counts_iterations(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record(duration_ns=0, iterations=3)
    epoch = await rig.armed(fake)
    fake.send(Kind.STATUS, epoch, steps=2)
    await eventually(lambda: (State.RECORDING, "step 2 of 3") in rig.said)
    fake.send(Kind.STATUS, epoch, steps=4)  # the first of them began before the recording
    fake.send(Kind.STOPPED, epoch, reason="iterations", steps=4)
    await fake.expect(Kind.RELEASE)
    assert (await recording).reason is Reason.NONE
    fake.close()


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("window", Reason.NONE),
        ("iterations", Reason.NONE),
        ("exit", Reason.TARGET_ENDED),
        ("overhead", Reason.OVER_LIMIT),
        ("?", Reason.NONE),
    ],
)
async def test_the_agent_stops_by_itself(rig: Rig, reason: str, expected: Reason) -> None:
    fake = await rig.attach()
    recording = rig.record()
    epoch = await rig.armed(fake)
    fake.send(Kind.STOPPED, epoch, reason=reason, events=1)
    await fake.expect(Kind.RELEASE)
    done = await recording
    assert done.reason is expected
    assert done.files
    assert rig.drains[0].target_died is False
    fake.close()


async def test_a_process_that_dies_leaves_what_it_had_recorded(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record()
    epoch = await rig.armed(fake)
    fake.send(Kind.STATUS, epoch, events=7, seconds="0.5")
    await eventually(lambda: bool(rig.drains))
    rig.intakes[0].events = 7
    fake.close()
    done = await recording
    assert (done.state, done.reason) == (State.DRAINING, Reason.TARGET_ENDED)
    assert done.files
    assert rig.drains[0].target_died is True
    assert done.cost.seconds == 0.5


async def test_a_process_that_dies_before_it_has_recorded_anything(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record()
    await rig.armed(fake)
    await eventually(lambda: bool(rig.drains))
    rig.intakes[0].events = 0
    fake.close()
    done = await recording
    assert (done.state, done.reason, done.files) == (State.FAILED, Reason.TARGET_ENDED, [])


async def test_a_process_that_does_not_answer_is_drained_anyway(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "STOP_SECONDS", 0.02)
    fake = await rig.attach()
    recording = rig.record()
    epoch = await rig.armed(fake)
    await eventually(lambda: bool(rig.drains))
    rig.stop.set()
    done = await recording
    assert done.reason is Reason.NONE
    assert any("did not answer" in warning for warning in done.warnings)
    assert rig.drains[0].target_died is True
    # Whenever it runs again, it finds these.
    assert (await fake.expect(Kind.STOP)).epoch == epoch
    assert (await fake.expect(Kind.RELEASE)).epoch == epoch
    fake.close()


async def test_a_full_disk_ends_it_and_keeps_what_there_is(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record()
    epoch = await rig.armed(fake)
    await eventually(lambda: bool(rig.drains))
    rig.intakes[0].failure = "the disk is full"
    fake.send(Kind.STATUS, epoch, events=1)
    await fake.expect(Kind.STOP)
    fake.send(Kind.STOPPED, epoch, reason="stop")
    done = await recording
    assert (done.state, done.reason, done.message) == (State.DRAINING, Reason.DISK_FULL, "the disk is full")
    fake.close()


async def test_a_streamer_that_cannot_be_kept_running_ends_it(rig: Rig) -> None:
    def broken(drain: TestDrain) -> None:
        drain.problem, drain.restarts = "the streamer died 5 times", 5
        drain.ended.set()

    rig.prepare = broken
    fake = await rig.attach()
    recording = rig.record()
    epoch = await rig.armed(fake)
    await fake.expect(Kind.STOP)
    fake.send(Kind.STOPPED, epoch, reason="stop")
    done = await recording
    assert done.reason is Reason.SOURCE_FAILED
    assert "died 5 times" in done.message
    assert any("started again 5 times" in warning for warning in done.warnings)
    fake.close()


async def test_what_does_not_arrive_in_time_is_said_to_be_missing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "DRAIN_SECONDS", 0.02)
    rig.prepare = lambda drain: setattr(drain, "stuck", True)
    fake = await rig.attach()
    recording = rig.record()
    epoch = await rig.armed(fake)
    fake.send(Kind.STOPPED, epoch, reason="window")
    done = await recording
    assert (done.state, done.reason) == (State.DRAINING, Reason.TIMEOUT)
    assert "not known" in done.message
    fake.close()


class Trickle(TestIntake):
    """One more event whenever somebody looks; all there at the last."""

    last = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "events":
            self.events = super().__getattribute__(name) + 1
            if super().__getattribute__(name) == self.last:
                self.finished.set()
        return super().__getattribute__(name)


@pytest.mark.parametrize(("last", "whole"), [(5, True), (0, False)])
async def test_what_still_arrives_is_waited_for_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, last: int, whole: bool
) -> None:
    monkeypatch.setattr(handover, "DRAIN_SECONDS", 0.001)
    intake = Trickle(Path("chunks.pfc"))
    intake.last = last
    drain = TestDrain(TestIntake(Path("another")), MiB)
    assert await handover.empty(drain, intake, target_died=False) == whole


async def test_what_it_costs_is_bounded_and_said(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record(max_overhead=0.02, stacks=True)
    packet = await fake.expect(Kind.ARM)
    assert packet.fields["max_overhead"] == "0.020000"
    fd = memfd()
    fake.send(Kind.ARMED, packet.epoch, fd, first=1)
    os.close(fd)
    fake.send(Kind.STATUS, packet.epoch, seconds="100000")
    assert (await fake.expect(Kind.LIMIT)).fields == {"drop": "stacks"}
    said = len(rig.said)
    fake.send(Kind.STATUS, packet.epoch, seconds="200000")
    await eventually(lambda: len(rig.said) > said)
    fake.send(Kind.STATUS, packet.epoch, seconds="300000")
    await fake.expect(Kind.STOP)
    fake.send(Kind.STOPPED, packet.epoch, reason="stop")
    done = await recording
    assert done.reason is Reason.OVER_LIMIT
    assert "stacks: left out" in " ".join(done.not_honoured)
    fake.close()


async def test_an_agent_that_cannot_arm_is_a_refusal(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record()
    epoch = (await fake.expect(Kind.ARM)).epoch
    fake.send(Kind.FAILED, epoch, why="no memory for the arena")
    done = await recording
    assert done.state is State.REFUSED
    assert "no memory for the arena" in done.message
    assert not done.files
    assert rig.intakes[0].closed
    fake.close()


async def test_a_process_that_ends_while_it_is_armed(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record()
    await fake.expect(Kind.ARM)
    fake.close()
    done = await recording
    assert (done.state, done.reason) == (State.FAILED, Reason.TARGET_ENDED)


async def test_a_process_that_is_silent_while_it_is_armed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "ARM_SECONDS", 0.02)
    fake = await rig.attach()
    done = await rig.record()
    assert (done.state, done.reason) == (State.FAILED, Reason.TARGET_SILENT)
    assert "kill -CONT" in done.message
    fake.close()


async def test_a_full_disk_leaves_an_idle_agent(rig: Rig) -> None:
    rig.refuse = Exhausted("no space")
    fake = await rig.attach()
    done = await rig.record()
    assert (done.state, done.reason) == (State.FAILED, Reason.DISK_FULL)
    epoch = await rig.armed(fake)  # it was told before the disk was asked, and may answer late
    assert [(await fake.expect(kind)).epoch for kind in (Kind.STOP, Kind.RELEASE)] == [epoch, epoch]
    fake.send(Kind.CHANGED, job="j")
    await eventually(lambda: rig.registry.all() and next(iter(rig.registry.all())).hello.job == "j")
    fake.close()


async def test_it_is_armed_before_its_directory_is_made(rig: Rig) -> None:
    made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    fake = await rig.attach()
    recording = rig.record(made=made)
    epoch = await rig.armed(fake)
    assert not rig.intakes
    made.set_result(None)
    await eventually(lambda: bool(rig.drains))
    fake.send(Kind.STOPPED, epoch, reason="window")
    assert (await recording).state is State.DRAINING
    fake.close()


async def test_no_directory_ends_what_was_armed(rig: Rig) -> None:
    made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    fake = await rig.attach()
    recording = rig.record(made=made)
    epoch = await rig.armed(fake)
    made.set_exception(Exhausted("no space"))
    assert (await recording).reason is Reason.DISK_FULL
    assert [(await fake.expect(kind)).epoch for kind in (Kind.STOP, Kind.RELEASE)] == [epoch, epoch]
    assert not rig.intakes
    fake.close()


async def test_a_slow_disk_holds_neither_the_loop_nor_a_process_that_is_let_go(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = threading.Event(), threading.Event()
    note = orphans.note

    def slow(file: Path, incarnation: int, epoch: int) -> None:
        asked.set()
        assert answers.wait(PATIENCE_SECONDS)
        note(file, incarnation, epoch)

    monkeypatch.setattr(orphans, "note", slow)
    fake = await rig.attach()
    recording = rig.record()
    epoch = await rig.armed(fake)
    await eventually(asked.is_set)
    # WHEN the recording is given up while the disk has it
    recording.cancel()
    assert [(await fake.expect(kind)).epoch for kind in (Kind.STOP, Kind.RELEASE)] == [epoch, epoch]
    assert not recording.done()
    answers.set()
    # THEN nothing of it is left
    with pytest.raises(asyncio.CancelledError):
        await recording
    assert not orphans.find(rig.folder.parent.parent)
    assert rig.intakes[0].closed
    fake.close()


async def test_the_lease_of_a_cuda_process_is_free_when_it_says_that_it_is_disarmed(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record(cuda=True)
    epoch = await rig.armed(fake)
    lease = rig.leases.of(ME)
    assert lease is not None
    assert (lease.epoch, str(lease.holder)) == (epoch, "capture c1")
    await eventually(lambda: bool(rig.drains))
    rig.stop.set()
    await fake.expect(Kind.STOP)
    fake.send(Kind.STOPPED, epoch, reason="stop")
    assert (await recording).state is State.DRAINING
    offer = rig.source.offer(replace(rig.process, cuda=True))
    assert offer.busy
    assert offer.reason.startswith(f"CUPTI in pid {ME.pid} is held by capture c1, which is over")
    assert rig.source.offer(rig.process).can  # without CUDA there is nothing to hold
    fake.send(Kind.DISARMED, epoch)
    await eventually(lambda: rig.leases.of(ME) is None)
    assert rig.source.offer(replace(rig.process, cuda=True)).can
    fake.close()


async def test_the_lease_of_a_process_that_cannot_arm_is_free(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record(cuda=True)
    epoch = (await fake.expect(Kind.ARM)).epoch
    fake.send(Kind.FAILED, epoch, why="no memory")
    assert (await recording).state is State.REFUSED
    assert rig.leases.of(ME) is None
    fake.close()


async def test_the_lease_of_another_holder_is_named(rig: Rig) -> None:
    fake = await rig.attach()
    with rig.leases.hold(ME, Holder(HolderKind.KINETO, capture="k1")):
        done = await rig.record(cuda=True)
    assert (done.state, done.reason) == (State.BUSY, Reason.CAPTURE_RUNNING)
    assert "is held by capture k1 (kineto)" in done.message
    fake.close()


async def test_stopped_before_the_agreed_start(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record(start_at_ns=2**62)
    await eventually(lambda: bool(rig.said))
    rig.stop.set()
    assert (await recording).state is State.CANCELLED
    assert not rig.intakes
    fake.close()


async def test_a_capture_that_is_aborted_leaves_an_idle_agent(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record()
    await rig.armed(fake)
    await eventually(lambda: bool(rig.drains))
    recording.cancel()
    await asyncio.wait([recording])
    await fake.expect(Kind.STOP)
    await fake.expect(Kind.RELEASE)
    assert rig.drains[0].closed
    assert rig.intakes[0].closed
    fake.close()


async def test_samples_that_cannot_be_had_are_not_honoured_and_the_capture_goes_on(rig: Rig) -> None:
    fake = await rig.attach()
    plan = rig.source.plan(rig.process, Options(duration_ns=SECOND, sample_hz=100))
    assert plan.serves
    assert plan.not_honoured == ("samples: this source records no stacks beside its events",)
    assert plan.deadline_ns == rig.source.plan(rig.process, Options(duration_ns=SECOND)).deadline_ns
    fake.close()


async def test_processes_that_are_not_attached_or_stopped_are_told_what_to_do(rig: Rig) -> None:
    offer = rig.source.offer(rig.process)
    assert not offer.can
    assert "profclient.attach()" in offer.fix
    assert (await rig.record()).state is State.REFUSED


async def test_who_attached_as_another_user_does_not_speak_for_the_process(rig: Rig) -> None:
    fake = await rig.attach()
    offer = rig.source.offer(replace(rig.process, uid=os.getuid() + 1))
    assert (offer.can, offer.why_code) == (False, Reason.NOT_PERMITTED)
    fake.close()


async def test_a_process_whose_owner_cannot_run_a_streamer_is_left_to_other_sources(rig: Rig) -> None:
    fake = await rig.attach()
    rig.unable = "uid 1000 cannot read /root"
    offer = rig.source.offer(rig.process)
    assert (offer.can, offer.busy, offer.why_code) == (False, False, Reason.NOT_PERMITTED)
    assert "/root" in offer.reason
    assert "install profd" in offer.fix
    fake.close()


async def test_a_recording_that_outlived_its_daemon_is_completed(rig: Rig) -> None:
    orphans.note(rig.folder / "chunks.pfc", 0xAA, 0x2A)
    await rig.source.open()
    rig.prepare = lambda drain: setattr(drain.intake, "losses", [Loss("target", "arena_full", 1)])
    fake = FakeAgent(rig.path)
    fd = memfd()
    fake.hello(fd, armed="2a")
    os.close(fd)
    await fake.expect(Kind.WELCOME)
    assert (await fake.expect(Kind.STOP)).epoch == 0x2A
    assert rig.source.offer(rig.process).busy
    fake.send(Kind.STOPPED, 0x2A, reason="stop", events=3)
    await fake.expect(Kind.RELEASE)
    await eventually(lambda: bool(rig.recovered))
    assert rig.recovered == [("c1", ME, [Loss("target", "arena_full", 1)])]
    assert not orphans.find(rig.folder.parent.parent)
    fake.close()


async def test_a_recording_that_nobody_knows_is_ended(rig: Rig) -> None:
    fake = FakeAgent(rig.path)
    fd = memfd()
    fake.hello(fd, armed="2b")
    os.close(fd)
    for kind in (Kind.WELCOME, Kind.STOP, Kind.RELEASE):
        await fake.expect(kind)
    assert not rig.recovered
    fake.close()


def test_notes_that_cannot_be_read_are_skipped(tmp_path: Path) -> None:
    good, bad = tmp_path / "c1" / "10-20", tmp_path / "c2" / "11-21"
    for folder in (good, bad):
        folder.mkdir(parents=True)
    orphans.note(good / "chunks.pfc", 1, 2)
    (bad / NOTE).write_text("{")
    found = orphans.find(tmp_path)
    assert found == {(1, 2): orphans.Orphan("c1", good)}
    assert orphans.process_of(found[1, 2]) == ProcessId(10, 20)


async def test_what_torchs_own_profiler_wrote_is_taken(rig: Rig, tmp_path: Path) -> None:
    # GIVEN an agent that names a file of its own process
    written = tmp_path / "torch.json"
    written.write_text('{"traceEvents": []}')
    fake = await rig.attach()
    recording = rig.record(duration_ns=SECOND // 50)
    epoch = await rig.armed(fake)
    await fake.expect(Kind.STOP)
    fake.send(Kind.STOPPED, epoch, reason="stop", file=str(written))
    done = await recording
    # THEN it is in the journal, and no longer where it was
    assert done.reason is Reason.NONE, done.message
    assert [Path(file.path).read_text() for file in done.files if file.format == "chrome"] == ['{"traceEvents": []}']
    assert not written.exists()
    fake.close()


async def test_a_link_instead_of_a_file_is_refused(rig: Rig, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of somebody else")
    (tmp_path / "torch.json").symlink_to(secret)
    fake = await rig.attach()
    recording = rig.record(duration_ns=SECOND // 50)
    epoch = await rig.armed(fake)
    await fake.expect(Kind.STOP)
    fake.send(Kind.STOPPED, epoch, reason="stop", file=str(tmp_path / "torch.json"))
    done = await recording
    assert any("symbolic link" in warning for warning in done.warnings)
    assert not any(file.format == "chrome" for file in done.files)
    assert secret.exists()
    fake.close()
