"""A disk that runs short ends captures with what they have, before it is full."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from profd.capture.disk_watch import DiskWatch
from profd.disk.space import Space, Urgency
from profd.model.capture import Reason, State

from tests.support.captures import ALICE, FakeTable, Rig, ended, process, request
from tests.support.small_disk import free_bytes, small_disk


@pytest.mark.parametrize("alone", [True, False])
async def test_a_capture_ends_early_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    monkeypatch.setattr("profd.capture.disk_watch.DISK_LOOK_SECONDS", 0.01)
    with small_disk(tmp_path, "4m"):
        rig = Rig(tmp_path, FakeTable([process(100), process(101)]))
        space = Space(tmp_path)
        async with rig.running() as manager:
            watch = DiskWatch(lambda: space.left(Urgency.RECORDING), lambda: manager.active, manager.end_all)
            watch.open()
            captures = [await manager.start(ALICE, request(pid)) for pid in ((100,) if alone else (100, 101))]
            for capture in captures:
                await rig.source.started(capture.targets[0].pid)
            with (tmp_path / "other").open("wb", buffering=0) as other:  # some program's, not ours
                while space.left(Urgency.RECORDING) >= 0:
                    other.write(bytes(1 << 16))
            for capture in captures:
                (target,) = (await ended(manager, capture.id)).targets
                assert (target.state, target.reason) == (State.PARTIAL, Reason.DISK_FULL)
                assert "runs short" in target.message
                assert target.trace
            await watch.close()
        assert free_bytes(tmp_path) > 0


async def test_nothing_is_ended_while_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profd.capture.disk_watch.DISK_LOOK_SECONDS", 0.0)
    looks, told = asyncio.Queue[None](), []
    loop = asyncio.get_running_loop()

    def left() -> int:
        loop.call_soon_threadsafe(looks.put_nowait, None)
        return 0

    watch = DiskWatch(left, lambda: 1, lambda reason, why: told.append(why))
    watch.open()
    for _ in range(3):
        await looks.get()
    await watch.close()
    assert told == []
