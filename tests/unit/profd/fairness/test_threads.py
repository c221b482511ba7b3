"""Threads for calls of users: one user never has all of them, nor those of the daemon itself."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from profd.capture.planner import ManagerSettings, Planner
from profd.disk.space import Space
from profd.fairness.shares import Holder
from profd.fairness.threads import in_thread
from profd.limits import CALL_THREADS, CALL_THREADS_PER_UID
from profd.questions.library import Library
from profd.rpc.imports import received
from profd.sources.jax.finder import Finder
from profd.sources.jax.listeners import Listening
from profd.store.store import Store, StoreLimits
from profd.targets.process import Process
from profd.targets.selector import Selector
from profd.trust import caller as callers
from profd.trust.caller import Caller
from profproto.v1 import trace_pb2 as pb

from tests.support.captures import LONG, FakeSource, FakeTable, FixedHeadroom, process
from tests.support.waiting import eventually
from tests.unit.profd.store.stored import add, run_job

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


class Stuck:
    """What keeps every user but root waiting, in a thread."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.waiting = 0

    def wait(self) -> None:
        """Whose call it is the context says, which goes with the thread."""
        if callers.current().uid:
            self.waiting += 1
            self.gate.wait()


Call = Callable[[Caller], Awaitable[object]]


@pytest.fixture
def stuck() -> Stuck:
    return Stuck()


def listing(stuck: Stuck, tmp_path: Path) -> Call:
    class Table(FakeTable):
        def snapshot(self) -> list[Process]:
            stuck.wait()
            return super().snapshot()

    planner = Planner([FakeSource()], Table([process(5)]), FixedHeadroom(), ManagerSettings("host"), {})
    return lambda caller: planner.targets(caller, Selector())


def sharing(stuck: Stuck, tmp_path: Path) -> Call:
    store = Store(tmp_path / "state", StoreLimits(free_share_min=0.0))
    share, library = store.share, Library(store, run_job)
    store.share = lambda trace, names: (stuck.wait(), share(trace, names))[1]  # type: ignore[method-assign]
    return lambda caller: library.share(caller, add(store, caller).id, [])


def importing(stuck: Stuck, tmp_path: Path) -> Call:
    class File(io.BytesIO):
        def write(self, data: object) -> int:
            stuck.wait()
            return 1

    async def sent() -> AsyncIterator[pb.ImportChunk]:
        yield pb.ImportChunk(data=b"a")

    def claim(uid: int) -> object:
        return Space(Path("/"), uid_share=2.0, measure=lambda: (1 << 30, 0)).claim(uid, "this import")

    return lambda caller: received(sent(), File(), claim(caller.uid), Holder.of(caller))  # type: ignore[arg-type]


def searching(stuck: Stuck, tmp_path: Path) -> Call:
    finder = Finder(look=lambda one: (stuck.wait(), Listening())[1])
    # Of users' processes nothing is known but whose they are: the reserve is for those of whoever runs the daemon.
    return lambda caller: finder.find(process(100 + caller.uid, uid=caller.uid or os.geteuid()))


@pytest.mark.parametrize("kind", [listing, sharing, importing, searching])
async def test_calls_of_users_that_wait_keep_root_from_none(
    kind: Callable[[Stuck, Path], Call], stuck: Stuck, tmp_path: Path
) -> None:
    call = kind(stuck, tmp_path)

    async def of(uid: int) -> None:
        caller = Caller(uid, uid, f"u{uid}", admin=not uid, pid=0)
        callers.enter(caller)
        await call(caller)

    asked = [asyncio.create_task(of(uid)) for uid in range(1001, 1001 + 64)]
    try:
        await eventually(lambda: stuck.waiting >= min(CALL_THREADS, 5))
        mine = asyncio.create_task(of(0))
        done, _ = await asyncio.wait({mine}, timeout=LONG)  # not cancelled: who is waits for a thread
        assert done == {mine}
    finally:
        stuck.gate.set()
        await asyncio.gather(*asked)
    await mine
