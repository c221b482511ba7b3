"""A real streamer process against a real server; arenas as a target would leave them."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from profd.capture.model import Loss

from tests.support import arena_writer as writer
from tests.support.ingest import EPOCH, INCARNATION, LONG, IngestRig, arena_chunks, ingest_rig, names_of, until

pytestmark = pytest.mark.slow


@pytest.fixture
async def rig() -> AsyncIterator[IngestRig]:
    with tempfile.TemporaryDirectory() as folder:
        async with ingest_rig(Path(folder)) as rig:
            yield rig


def begin(rig: IngestRig, fd: int, epoch: int = EPOCH):
    intake = rig.ingest.expect(INCARNATION, epoch, os.getuid(), rig.folder)
    drain = rig.streamers.drain(os.getuid(), os.getgid(), INCARNATION, epoch, fd)
    os.close(fd)
    return intake, drain


async def test_everything_sealed_and_open_arrives_once_and_is_accounted_for(rig: IngestRig) -> None:
    chunks = list(arena_chunks(streams=3, each=20))
    chunks[-1].state, chunks[-2].state = writer.OPEN, writer.ORPHAN
    fd = writer.arena_fd(chunks, recording=0, lost=(11, 2), recorded=58 * 8)
    intake, drain = begin(rig, fd)
    async with asyncio.timeout(LONG):
        await drain.finish(target_died=False)
        await intake.finished.wait()
    assert not drain.problem
    assert drain.restarts == 0
    drain.close()
    intake.close()
    assert sorted(names_of(intake.path)) == [(stream, sequence) for stream in range(3) for sequence in range(20)]
    assert intake.events == intake.recorded == 60 * 8
    assert intake.losses == [Loss("target", "arena_full", 11), Loss("target", "strings_full", 2)]


async def test_streamer_killed_midway_another_goes_on(rig: IngestRig) -> None:
    fd = writer.arena_fd(list(arena_chunks(streams=4, each=50)), recording=0, recorded=200 * 8)
    intake, drain = begin(rig, fd)
    async with asyncio.timeout(LONG):
        await until(lambda: rig.streamers.pids)
        os.kill(rig.streamers.pids[0], signal.SIGKILL)
        await until(lambda: drain.restarts > 0)
        await drain.finish(target_died=True)
        await intake.finished.wait()
    drain.close()
    intake.close()
    assert len(names_of(intake.path)) == len(set(names_of(intake.path))) == 200
    assert intake.losses == []
