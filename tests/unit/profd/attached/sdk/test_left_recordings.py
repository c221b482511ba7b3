"""Recordings that a daemon finds when it comes back."""

from __future__ import annotations

import os
from pathlib import Path

from profd.attached.agents.protocol import PacketKind
from profd.attached.sdk import orphans
from profd.errors import Exhausted
from profd.journal.journal import NOTE
from profd.limits import JOURNAL_TARGETS_PER_UID_MAX
from profd.model.capture import Loss
from profd.targets.process import ProcessId

from tests.support.fake_agent import FakeAgent, memfd
from tests.support.sdk_rig import ME, Rig
from tests.support.waiting import eventually


async def test_a_recording_that_outlived_its_daemon_is_completed(rig: Rig) -> None:
    orphans.note(rig.folder / "chunks.pfc", 0xAA, 0x2A)
    await rig.source.open()
    assert rig.source.orphaned() == {("c1", ME)}
    rig.prepare = lambda drain: setattr(drain.intake, "losses", [Loss("target", "arena_full", 1)])
    fake = FakeAgent(rig.path)
    fd = memfd()
    fake.hello(fd, armed="2a")
    os.close(fd)
    await fake.expect(PacketKind.WELCOME)
    assert (await fake.expect(PacketKind.STOP)).epoch == 0x2A
    assert rig.source.offer(rig.process).busy
    assert (rig.returned, rig.recovered) == ([("c1", ME)], [])
    fake.send(PacketKind.STOPPED, 0x2A, reason="stop", events=3)
    await fake.expect(PacketKind.RELEASE)
    await eventually(lambda: bool(rig.recovered))
    assert rig.recovered == [("c1", ME, [Loss("target", "arena_full", 1)])]
    assert not orphans.find(rig.folder.parent.parent)
    fake.close()


async def test_what_others_keep_for_a_retry_hides_no_recording(rig: Rig) -> None:
    """As many as one user may keep, each with a note of another source's; ids of captures are chance."""
    journal = rig.folder.parent.parent
    for number in range(JOURNAL_TARGETS_PER_UID_MAX):
        folder = journal / f"c0{number // 256:02}" / f"{number + 1}-1"
        folder.mkdir(parents=True)
        (folder / NOTE).write_text('{"files": {"trace.json": "chrome"}, "whole": true}')
    orphans.note(rig.folder / "chunks.pfc", 0xAA, 0x2A)
    await rig.source.open()
    assert rig.source.orphaned() == {("c1", ME)}


async def test_whoever_waits_hears_that_it_could_not_be_completed(rig: Rig) -> None:
    orphans.note(rig.folder / "chunks.pfc", 0xAA, 0x2A)
    await rig.source.open()
    rig.refuse = Exhausted("the disk is full")
    fake = FakeAgent(rig.path)
    fd = memfd()
    fake.hello(fd, armed="2a")
    os.close(fd)
    await eventually(lambda: rig.recovered == [("c1", ME, None)])
    fake.close()


async def test_a_process_that_has_let_go_of_its_recording_tells_how_much_is_lost(rig: Rig) -> None:
    orphans.note(rig.folder / "chunks.pfc", 0xAA, 0x2A)
    await rig.source.open()
    fake = await rig.attach(left="2a", left_events=9, left_dropped=2)
    await eventually(lambda: bool(rig.recovered))
    assert rig.returned == [("c1", ME)]
    assert rig.recovered == [("c1", ME, [Loss("target", "dropped", 2), Loss("ingest", "missing", 8)])]  # 1 had arrived
    assert rig.intakes[-1].closed
    assert orphans.find(rig.folder.parent.parent)  # for the next daemon, until the end of the capture is on disk
    assert rig.source.offer(rig.process).can
    fake.close()
    again = await rig.attach(left="2a", left_events=9)
    assert len(rig.recovered) == 1
    again.close()


async def test_what_another_process_has_let_go_of_is_not_its_to_tell(rig: Rig) -> None:
    folder = rig.folder.parent / "10-20"
    folder.mkdir()
    orphans.note(folder / "chunks.pfc", 0xAA, 0x2A)
    await rig.source.open()
    fake = await rig.attach(left="2a", left_events=9)
    assert (rig.returned, rig.recovered, len(rig.source.orphaned())) == ([], [], 1)
    fake.close()


async def test_a_recording_that_nobody_knows_is_ended(rig: Rig) -> None:
    fake = FakeAgent(rig.path)
    fd = memfd()
    fake.hello(fd, armed="2b")
    os.close(fd)
    for kind in (PacketKind.WELCOME, PacketKind.STOP, PacketKind.RELEASE):
        await fake.expect(kind)
    assert not rig.recovered
    fake.close()


async def test_a_recording_of_another_process_is_not_its_to_complete(rig: Rig) -> None:
    folder = rig.folder.parent / "10-20"
    folder.mkdir()
    orphans.note(folder / "chunks.pfc", 0xAA, 0x2A)
    await rig.source.open()
    fake = FakeAgent(rig.path)
    fd = memfd()
    fake.hello(fd, armed="2a")
    os.close(fd)
    for kind in (PacketKind.WELCOME, PacketKind.STOP, PacketKind.RELEASE):
        await fake.expect(kind)
    assert not rig.returned
    assert [process for _, process in rig.source.orphaned()] == [ProcessId(10, 20)]
    fake.close()


def test_notes_that_cannot_be_read_are_skipped(tmp_path: Path) -> None:
    good, bad = tmp_path / "c1" / "10-20", tmp_path / "c2" / "11-21"
    for folder in (good, bad):
        folder.mkdir(parents=True)
    orphans.note(good / "chunks.pfc", 1, 2)
    (bad / NOTE).write_text("{")
    found = orphans.find(tmp_path)
    assert found == {(1, 2): orphans.Orphan("c1", ProcessId(10, 20), good)}
