"""Sources that let go by themselves: they record before anything of the capture is written."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest
from profd.model.capture import Reason, State
from profd.targets.process import ProcessId

from tests.support.captures import (
    ALICE,
    LONG,
    Rig,
    declare,
    ended,
    request,
)


async def test_a_source_that_lets_go_by_itself_does_not_wait_for_the_disk(rig: Rig) -> None:
    rig.source.declaration = declare("kineto", self_disarming=True)
    rig.records.gate = threading.Event()
    async with rig.running() as manager:
        starting = asyncio.create_task(manager.start(ALICE, request(100)))
        await rig.source.started(100)
        assert not starting.done()
        rig.records.gate.set()
        capture = (await starting).id
        rig.source.finish(100)
        assert (await ended(manager, capture)).targets[0].state is State.STORED


async def test_a_capture_that_cannot_be_recorded_is_ended_although_it_had_begun(rig: Rig) -> None:
    rig.source.declaration = declare("kineto", self_disarming=True)
    rig.records.fail = OSError(errno.ENOSPC, "No space left on device")
    async with rig.running() as manager:
        record = await manager.start(ALICE, request(100))
        rig.records.fail = None
        target = (await ended(manager, record.id)).targets[0]
        assert (target.state, target.reason) == (State.FAILED, Reason.DISK_FULL)
        async with asyncio.timeout(LONG):
            while rig.source.sessions:
                await asyncio.sleep(0)


async def test_a_directory_that_comes_late_is_not_left_behind(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.source.declaration = declare("kineto", self_disarming=True)
    rig.records.fail = OSError(errno.ENOSPC, "No space left on device")
    make, gate, made = rig.journal.directory, threading.Event(), threading.Event()

    def late(capture: str, process: ProcessId) -> Path:
        if process.pid != 100:
            return make(capture, process)
        assert gate.wait(LONG)
        try:
            return make(capture, process)
        finally:
            made.set()

    monkeypatch.setattr(rig.journal, "directory", late)
    async with rig.running() as manager:
        record = await manager.start(ALICE, request(100))
        rig.records.fail = None
        await ended(manager, record.id)
        async with asyncio.timeout(LONG):
            while rig.source.sessions:  # it is cancelled while it waits for the directory
                await asyncio.sleep(0)
        other = (await manager.start(ALICE, request(101))).id  # what is to be dropped already has been, behind it
        rig.source.finish(101)
        await ended(manager, other)
        gate.set()
    assert await asyncio.to_thread(made.wait, LONG)
    assert record.id not in os.listdir(rig.directory / "journal")
