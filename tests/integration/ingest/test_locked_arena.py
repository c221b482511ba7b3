"""A target that keeps the lock of its arena's inode for ever: it harms its own user's captures, and nobody else."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from profd import limits
from profd.attached.ingest import streamer_process, streamers
from profd.attached.ingest.leads import Leads
from profd.targets.errands.office import Errands

from tests.support import arena_writer as writer
from tests.support.ingest import EPOCH, INCARNATION, LONG, ingest_rig
from tests.support.locked_inode import locked, why_not
from tests.support.waiting import eventually

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

MALLORY, BOB = 4242, 4243


def arena() -> int:
    return writer.arena_fd([writer.Chunk(state=writer.FREE, data=b"", count=0) for _ in range(100)])


def path_of(fd: int) -> str:
    return f"/proc/{os.getpid()}/fd/{fd}"


async def test_others_arenas_are_allocated_and_freed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ERRAND_SECONDS", 0.5)
    office = Errands()
    leads, bad, good = Leads(office=office), arena(), arena()
    try:
        with locked(path_of(bad), tmp_path / "mount"):
            hers, his = leads.begin(MALLORY, bad), leads.begin(BOB, good)
            before = os.fstat(good).st_blocks
            async with asyncio.timeout(LONG):
                await eventually(lambda: os.fstat(good).st_blocks > before)
                hers.end(bad)
                his.end(good)
                await leads.done()
            # THEN his are free, and hers stay taken: nobody knows what she has of them
            assert os.fstat(good).st_blocks * 512 == os.sysconf("SC_PAGESIZE")
            assert leads.taken == limits.LEAD_BYTES
    finally:
        office.close()
        os.close(bad)
        os.close(good)


async def test_a_streamer_that_waits_for_it_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (streamer_process, streamers):
        monkeypatch.setattr(module, "EXIT_SECONDS", 0.5)
    monkeypatch.setattr(limits, "ERRAND_SECONDS", 0.5)
    (tmp_path / "rig").mkdir()
    fd = arena()
    async with ingest_rig(tmp_path / "rig") as rig:
        with locked(path_of(fd), tmp_path / "mount"):
            intake = await rig.ingest.expect(INCARNATION, EPOCH, os.getuid(), rig.folder)
            drain = rig.streamers.drain(os.getuid(), INCARNATION, EPOCH, fd)
            # WHEN everything has arrived, and its streamer would give the memory back
            finishing = asyncio.ensure_future(drain.finish(target_died=False))
            async with asyncio.timeout(LONG):
                await intake.finished.wait()
                (streamer,) = rig.streamers._uids.values()
                process = streamer._process
                assert process is not None
                await eventually(process.waits)
            drain.close()
            await finishing
            # THEN its user's captures end with a sentence, without one process more for each
            async with asyncio.timeout(LONG):
                await eventually(lambda: process.is_stuck)
                again = rig.streamers.drain(os.getuid(), INCARNATION, EPOCH, fd)
                await again.finish(target_died=False)
            assert "keeps an arena locked" in again.problem
            again.close()
            assert rig.streamers.pids == [process.pid]
            # THEN the daemon ends
            async with asyncio.timeout(LONG):
                await rig.streamers.close()
            assert process.waits()
            assert streamer_process.reap() == 1
        await eventually(lambda: not streamer_process.reap())
        intake.close()
    os.close(fd)
