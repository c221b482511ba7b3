"""One recording of an agent that does as the test says; ingest and streamers are the test's, too."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from profd.attached.agents.protocol import PacketKind
from profd.attached.sdk import handover, orphans, planning
from profd.attached.sdk.recording import SdkRecorder
from profd.limits import MiB
from profd.model.capture import Cost, Loss, Options, Reason, State
from profd.model.shortfall import NO_OPERATORS, OBSERVER_FIX
from profd.sources.base import Session

from tests.support import other_program
from tests.support.fake_agent import FakeAgent, memfd
from tests.support.other_program import needs_setuid
from tests.support.sdk_rig import SECOND, Rig, StandInDrain, StandInIntake
from tests.support.waiting import eventually


async def test_operators_that_were_recorded_are_not_said_to_be_missing(rig: Rig) -> None:
    """GIVEN a process of whose observer nobody here knows WHEN it finds one as it is armed THEN nothing is missing."""
    fake = await rig.attach(framework="torch 2.13.0")
    recording = rig.record()
    epoch = await rig.armed(fake)
    rig.stop.set()
    await fake.expect(PacketKind.STOP)
    fake.send(PacketKind.STOPPED, epoch, reason="stop", last=2_000, events=53, seconds="0.25", **{"seconds.ops": "0.2"})
    done = await recording
    assert (done.message, done.not_honoured) == ("", [])
    fake.close()


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
    assert (await fake.expect(PacketKind.STOP)).epoch == epoch
    fake.send(
        PacketKind.STOPPED, epoch, reason="stop", last=2_000, events=53, seconds="0.25", steps=3, step_ns=110,
        step_ns_before=100, **{"seconds.ranges": "0.25", "not_honoured": "iterations: no steps"},
    )  # fmt: skip
    done = await recording
    assert (await fake.expect(PacketKind.RELEASE)).epoch == epoch
    assert (done.state, done.reason) == (State.DRAINING, Reason.NONE)
    assert done.files == rig.kept
    assert (done.start_ns, done.end_ns) == (1_000, 2_000)
    assert done.lost == [Loss("target", "arena_full", 3)]
    [operators, *others] = done.not_honoured
    assert operators == f"{NO_OPERATORS} ({OBSERVER_FIX})"
    assert done.message == operators.removeprefix("torch: ")
    assert others == ["flops: no operators", "iterations: no steps"]
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


async def test_steps_after_it_are_its_measure_where_nobody_counted_before(rig: Rig) -> None:
    heard: list[tuple[str, Cost]] = []
    rig.source.on_compared = lambda capture, process, cost: heard.append((capture, cost))
    fake = await rig.attach(framework="torch 2.13.0")
    recording = rig.record()
    epoch = await rig.armed(fake)
    rig.intakes[0].events = 1
    rig.stop.set()
    await fake.expect(PacketKind.STOP)
    fake.send(PacketKind.STOPPED, epoch, reason="stop", last=2_000, events=1, steps=3, step_ns=SECOND)
    done = await recording
    assert done.cost.step_ratio is None  # steps so long are not waited for
    assert rig.source.statistics().steps == {}
    fake.send(PacketKind.STATUS, epoch, step_ns_after=SECOND * 4 // 5, after="over")
    await eventually(lambda: bool(heard))
    [(_, cost)] = heard
    assert (cost.how, cost.step_ratio) == ("measured", 1.25)
    assert cost.detail.startswith("a step took 1000.00 ms during, 800.00 ms after; ")
    counted = rig.source.statistics().steps  # what a process says of itself, up to the time that has passed
    assert counted["during"] == counted["after"] < 0.8
    fake.close()


async def test_the_window_opens_with_the_answer_though_the_files_are_not_ready(rig: Rig) -> None:
    fake = await rig.attach()
    files: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    recording = rig.record(made=files)
    epoch = await rig.armed(fake)

    async def all_is_heard(job: str) -> int:
        fake.send(PacketKind.CHANGED, job=job)
        await eventually(lambda: next(iter(rig.registry.all())).hello.job == job)
        return time.monotonic_ns()

    answered_ns = await all_is_heard("answered")
    fake.send(PacketKind.STOPPED, epoch, reason="iterations", steps=1)
    stopped_ns = await all_is_heard("stopped")
    files.set_result(None)
    done = await recording
    [window] = [phase for phase in done.waterfall if phase.name == "window"]
    assert window.duration_ns >= stopped_ns - answered_ns
    fake.close()


async def test_a_window_ends_by_itself(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record(duration_ns=SECOND // 50)
    epoch = await rig.armed(fake)
    await eventually(lambda: bool(rig.intakes))
    rig.intakes[0].events = 0
    await fake.expect(PacketKind.STOP)
    fake.send(PacketKind.STOPPED, epoch, reason="stop")
    done = await recording
    assert done.reason is Reason.NO_FILE
    assert done.message.startswith("nothing was recorded: no range or operator")
    assert "--samples 100hz" in done.message  # what to do about it
    fake.close()


async def test_the_agent_counts_iterations(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record(duration_ns=0, iterations=3)
    epoch = await rig.armed(fake)
    fake.send(PacketKind.STATUS, epoch, steps=2)
    await eventually(lambda: (State.RECORDING, "step 2 of 3") in rig.said)
    fake.send(PacketKind.STATUS, epoch, steps=4)  # one ended while it was told to stop
    fake.send(PacketKind.STOPPED, epoch, reason="iterations", steps=4)
    await fake.expect(PacketKind.RELEASE)
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
    fake.send(PacketKind.STOPPED, epoch, reason=reason, events=1)
    await fake.expect(PacketKind.RELEASE)
    done = await recording
    assert done.reason is expected
    assert done.files
    assert rig.drains[0].target_died is False
    fake.close()


async def test_a_process_that_dies_leaves_what_it_had_recorded(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record()
    epoch = await rig.armed(fake)
    fake.send(PacketKind.STATUS, epoch, events=7, seconds="0.5")
    await eventually(lambda: bool(rig.drains))
    rig.intakes[0].events = 7
    fake.close()
    done = await recording
    assert (done.state, done.reason) == (State.DRAINING, Reason.TARGET_ENDED)
    assert done.files
    assert rig.drains[0].target_died is True
    assert done.cost.seconds == 0.5


async def test_an_agent_that_is_cut_off_is_told_as_what_it_is(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record()
    await rig.armed(fake)
    await eventually(lambda: bool(rig.drains))
    rig.intakes[0].events = 7
    fake.send_raw(b"no packet of an agent")
    done = await recording
    assert (done.state, done.reason) == (State.DRAINING, Reason.SOURCE_FAILED)
    assert "cut off" in done.message
    assert "does not begin as the protocol's do" in done.message
    fake.close()


async def test_a_process_that_dies_before_it_has_recorded_anything(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record()
    await rig.armed(fake)
    await eventually(lambda: bool(rig.drains))
    rig.intakes[0].events = 0
    fake.close()
    done = await recording
    assert (done.cost.how, done.cost.seconds) == ("unknown", None)
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
    assert (await fake.expect(PacketKind.STOP)).epoch == epoch
    assert (await fake.expect(PacketKind.RELEASE)).epoch == epoch
    fake.close()


async def test_a_full_disk_ends_it_and_keeps_what_there_is(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record()
    epoch = await rig.armed(fake)
    await eventually(lambda: bool(rig.drains))
    rig.intakes[0].failure = "the disk is full"
    fake.send(PacketKind.STATUS, epoch, events=1)
    await fake.expect(PacketKind.STOP)
    fake.send(PacketKind.STOPPED, epoch, reason="stop")
    done = await recording
    assert (done.state, done.reason, done.message) == (State.DRAINING, Reason.DISK_FULL, "the disk is full")
    fake.close()


async def test_a_streamer_that_cannot_be_kept_running_ends_it(rig: Rig) -> None:
    def broken(drain: StandInDrain) -> None:
        drain.problem, drain.restarts = "the streamer died 5 times", 5
        drain.ended.set()

    rig.prepare = broken
    fake = await rig.attach()
    recording = rig.record()
    epoch = await rig.armed(fake)
    await fake.expect(PacketKind.STOP)
    fake.send(PacketKind.STOPPED, epoch, reason="stop")
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
    fake.send(PacketKind.STOPPED, epoch, reason="window")
    done = await recording
    assert (done.state, done.reason) == (State.DRAINING, Reason.TIMEOUT)
    assert "not known" in done.message
    fake.close()


class Trickle(StandInIntake):
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
    drain = StandInDrain(StandInIntake(Path("another")), MiB)
    assert await handover.empty(drain, intake, target_died=False) == whole


async def test_what_it_costs_is_bounded_and_said(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record(max_overhead=0.02, stacks=True)
    packet = await fake.expect(PacketKind.ARM)
    assert packet.fields["max_overhead"] == "0.020000"
    fd = memfd()
    fake.send(PacketKind.ARMED, packet.epoch, fd, first=1)
    os.close(fd)
    fake.send(PacketKind.STATUS, packet.epoch, seconds="100000")
    assert (await fake.expect(PacketKind.LIMIT)).fields == {"drop": "stacks"}
    said = len(rig.said)
    fake.send(PacketKind.STATUS, packet.epoch, seconds="200000")
    await eventually(lambda: len(rig.said) > said)
    fake.send(PacketKind.STATUS, packet.epoch, seconds="300000")
    await fake.expect(PacketKind.STOP)
    fake.send(PacketKind.STOPPED, packet.epoch, reason="stop")
    done = await recording
    assert done.reason is Reason.OVER_LIMIT
    assert "stacks: left out" in " ".join(done.not_honoured)
    fake.close()


async def test_a_capture_that_is_aborted_leaves_an_idle_agent(rig: Rig) -> None:
    fake = await rig.attach()
    recording = rig.record()
    await rig.armed(fake)
    await eventually(lambda: bool(rig.drains))
    recording.cancel()
    await asyncio.wait([recording])
    await fake.expect(PacketKind.STOP)
    await fake.expect(PacketKind.RELEASE)
    assert rig.drains[0].closed
    assert rig.intakes[0].closed
    fake.close()


async def test_samples_that_cannot_be_had_are_not_honoured_and_the_capture_goes_on(rig: Rig) -> None:
    fake = await rig.attach()
    plan = rig.source.plan(rig.process, Options(duration_ns=SECOND, sample_hz=100))
    assert plan.serves
    assert plan.unserved["sample_hz"] == "this source records no stacks beside its events"
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


async def test_what_torchs_own_profiler_wrote_is_taken(rig: Rig, tmp_path: Path) -> None:
    # GIVEN an agent that names a file of its own process
    written = tmp_path / "torch.json"
    written.write_text('{"traceEvents": []}')
    fake = await rig.attach()
    recording = rig.record(duration_ns=SECOND // 50)
    epoch = await rig.armed(fake)
    await fake.expect(PacketKind.STOP)
    fake.send(PacketKind.STOPPED, epoch, reason="stop", file=str(written))
    done = await recording
    # THEN it is in the journal, and no longer where it was
    assert done.reason is Reason.NONE, done.message
    assert [Path(file.path).read_text() for file in done.files if file.format == "chrome"] == ['{"traceEvents": []}']
    assert not written.exists()
    fake.close()


@needs_setuid
@pytest.mark.parametrize("word", ["setuid", "exec"])
async def test_what_was_not_accepted_is_not_armed(rig: Rig, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    # GIVEN a capture of an attached process that begins later
    waiting, start = asyncio.Event(), asyncio.Event()

    async def wait(self: SdkRecorder) -> None:
        waiting.set()
        await start.wait()

    monkeypatch.setattr(SdkRecorder, "_reach_start", wait)
    rig.path.parent.chmod(0o711)
    rig.path.chmod(0o666)
    with other_program.target() as target:
        fake = FakeAgent.__new__(FakeAgent)
        fake.socket = target.connect(rig.path)
        fake.socket.setblocking(False)
        fake.hello()
        await fake.expect(PacketKind.WELCOME)
        session = Session("c1", rig.folder, rig.stop, lambda state, doing: None)
        recording = asyncio.create_task(rig.source.record(target.process(), Options(duration_ns=SECOND), session))
        await waiting.wait()
        # WHEN it becomes another program, and somebody has kept its connection
        target.say(word)
        start.set()
        done = await recording
    # THEN nobody is told to record
    assert (done.state, done.reason) == (State.FAILED, Reason.TARGET_ENDED)
    assert "another program" in done.message
    with pytest.raises(BlockingIOError):
        fake.socket.recv(1)
    fake.close()


async def test_a_link_instead_of_a_file_is_refused(rig: Rig, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of somebody else")
    (tmp_path / "torch.json").symlink_to(secret)
    fake = await rig.attach()
    recording = rig.record(duration_ns=SECOND // 50)
    epoch = await rig.armed(fake)
    await fake.expect(PacketKind.STOP)
    fake.send(PacketKind.STOPPED, epoch, reason="stop", file=str(tmp_path / "torch.json"))
    done = await recording
    assert any("symbolic link" in warning for warning in done.warnings)
    assert not any(file.format == "chrome" for file in done.files)
    assert secret.exists()
    fake.close()
