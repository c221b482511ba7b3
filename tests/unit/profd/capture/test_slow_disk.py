"""Records of captures on a disk that takes its time: users take turns."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from tests.support.captures import ALICE, BOB, FakeTable, MemoryRecords, Rig, process, request
from tests.support.waiting import eventually


class InOrder(MemoryRecords):
    """Knows whose records were written, in which order."""

    def __init__(self) -> None:
        super().__init__()
        self.owners: list[str] = []

    def put(self, capture: str, record: dict[str, Any]) -> None:
        self.owners.append(record["owner"])
        super().put(capture, record)


async def test_on_a_slow_disk_users_have_their_records_written_in_turn(tmp_path: Path) -> None:
    """GIVEN a user who begins many captures at once THEN another user's waits for one of their records, not for all."""
    alices = [process(pid) for pid in range(100, 106)]
    rig = Rig(tmp_path, FakeTable([*alices, process(200, uid=51001, user="bob")]))
    rig.records = records = InOrder()
    async with rig.running() as manager:
        records.gate = threading.Event()
        asked = [asyncio.ensure_future(manager.start(ALICE, request(one.id.pid))) for one in alices]
        await eventually(lambda: records.owners and manager.active == len(alices))
        asked.append(asyncio.ensure_future(manager.start(BOB, request(200))))
        await eventually(lambda: manager.active == len(asked))
        records.gate.set()
        await asyncio.gather(*asked)
        assert records.owners.index("bob") < 3


async def test_what_waits_for_its_turn_is_written_before_the_end(tmp_path: Path) -> None:
    alices = [process(pid) for pid in range(100, 106)]
    rig = Rig(tmp_path, FakeTable(alices))
    async with rig.running() as manager:
        rig.records.gate = threading.Event()
        asked = [asyncio.ensure_future(manager.start(ALICE, request(one.id.pid))) for one in alices]
        await eventually(lambda: manager.active == len(alices))
        closing = asyncio.ensure_future(manager.close(0.0))
        await asyncio.sleep(0)
        rig.records.gate.set()
        await closing
    assert len(rig.records.kept) == len(alices)
    assert not [done for done in await asyncio.gather(*asked, return_exceptions=True) if isinstance(done, RuntimeError)]
