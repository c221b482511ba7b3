"""Threads for calls of users: one user never has all of them, nor those of the daemon itself."""

from __future__ import annotations

import asyncio
import threading

import pytest
from profd.fairness.shares import Holder
from profd.fairness.threads import in_thread
from profd.limits import CALL_THREADS, CALL_THREADS_PER_UID

from tests.support.captures import LONG
from tests.support.waiting import eventually

ROOT = Holder(0, reserved=True)


class Held:
    """Work that goes on until it is let go, and who does it."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.doing: list[int] = []

    def work(self, uid: int) -> int:
        """Its uid, at the end."""
        self.doing.append(uid)
        self.gate.wait()
        return uid


@pytest.fixture
def held() -> Held:
    return Held()


async def test_users_who_hold_all_their_threads_keep_neither_another_nor_root(held: Held) -> None:
    users = range(1001, 1001 + CALL_THREADS // CALL_THREADS_PER_UID - 1)
    asked = [
        asyncio.create_task(in_thread(Holder(uid, reserved=False), held.work, uid)) for uid in users for _ in range(9)
    ]
    try:
        async with asyncio.timeout(LONG):
            await eventually(lambda: len(held.doing) == len(users) * CALL_THREADS_PER_UID)
            assert await in_thread(Holder(2001, reserved=False), abs, -7) == 7
            assert await in_thread(ROOT, abs, -8) == 8
            assert len(held.doing) == len(users) * CALL_THREADS_PER_UID
    finally:
        held.gate.set()
        await asyncio.gather(*asked)


async def test_users_who_hold_all_threads_of_users_keep_root_from_none(held: Held) -> None:
    asked = [
        asyncio.create_task(in_thread(Holder(uid, reserved=False), held.work, uid)) for uid in range(1001, 1001 + 64)
    ]
    try:
        async with asyncio.timeout(LONG):
            await eventually(lambda: len(held.doing) == CALL_THREADS)
            assert await in_thread(ROOT, abs, -8) == 8
            assert await asyncio.to_thread(abs, -9) == 9
    finally:
        held.gate.set()
        await asyncio.gather(*asked)


@pytest.mark.parametrize("holder", [ROOT, Holder(1001, reserved=False)])
async def test_who_is_cancelled_waits_for_the_thread(held: Held, holder: Holder) -> None:
    asked = asyncio.create_task(in_thread(holder, held.work, 1001))
    async with asyncio.timeout(LONG):
        await eventually(lambda: held.doing == [1001])
        asked.cancel()
        await asyncio.sleep(0)
        assert not asked.done()
        held.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await asked
