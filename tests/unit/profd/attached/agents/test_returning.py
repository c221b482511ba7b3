"""Processes that were attached to the daemon before: awaited by name, for a bounded time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from profd.attached.agents import returning
from profd.attached.agents.returning import BACK_SECONDS, Known, Returning
from profd.limits import AGENT_LABEL_CHARACTERS_MAX, AGENTS_MAX, AGENTS_RESERVED, RANK_MAX
from profd.targets.process import ProcessId
from profd.targets.table import ProcessTable

from tests.support.agent_server import ME, Served
from tests.support.waiting import eventually

OTHER = Known(ME.pid + 1, 77, 1, "j1")
MINE = Known(ME.pid, ME.start_ticks, 3, "j1")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def writing() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


async def opened(file: Path, pool: ThreadPoolExecutor, clock: Clock, *known: Known) -> Returning:
    file.write_bytes(msgspec.json.encode(known))
    found = Returning(pool, clock)
    await found.open(file, lambda process: process == ME, tuple)
    return found


async def test_who_lives_is_awaited_until_it_is_back_or_too_late(tmp_path: Path, writing: ThreadPoolExecutor) -> None:
    clock = Clock()
    awaited = await opened(tmp_path / "attached.json", writing, clock, MINE, OTHER)
    assert (awaited.of(ME), awaited.of(OTHER.process)) == (MINE, None)
    clock.now += BACK_SECONDS - 2.5
    assert awaited.why(ME).endswith("comes back by itself, within 3 s")
    clock.now += 2.5
    assert (awaited.of(ME), awaited.why(ME)) == (None, "")
    assert not await awaited.wait([ME], 60)


async def test_a_wait_ends_as_the_last_one_comes_or_with_its_time(tmp_path: Path, writing: ThreadPoolExecutor) -> None:
    awaited = await opened(tmp_path / "attached.json", writing, Clock(), MINE)
    assert await awaited.wait([ME], 0.001)
    waiting = asyncio.create_task(awaited.wait([ME, ProcessId(1, 1)], 600))
    asyncio.get_running_loop().call_soon(awaited.came, ME)  # behind its first step
    assert await waiting
    assert not await awaited.wait([ME], 600)
    awaited.close()


async def test_one_that_comes_wakes_nobody_who_waits_for_others(tmp_path: Path, writing: ThreadPoolExecutor) -> None:
    # GIVEN many who wait for many
    file, known = tmp_path / "attached.json", [Known(pid, 1) for pid in range(1, 101)]
    file.write_bytes(msgspec.json.encode(known))
    awaited = Asked(writing)
    await awaited.open(file, lambda process: True, tuple)
    waiting = [asyncio.create_task(awaited.wait([each.process for each in known], 600)) for _ in range(20)]
    await asyncio.sleep(0)
    # WHEN they come THEN each look is for one who has come
    awaited.times = 0
    for each in known:
        awaited.came(each.process)
        await asyncio.sleep(0)
    assert await asyncio.gather(*waiting) == [True] * 20
    assert awaited.times <= 20 * 100


class Asked(Returning):
    times = 0

    def of(self, process: ProcessId) -> Known | None:
        self.times += 1
        return super().of(process)


async def test_all_that_may_attach_are_remembered(tmp_path: Path, writing: ThreadPoolExecutor) -> None:
    # GIVEN as many as there may be, that say all that they may
    words = "\U00010000" * AGENT_LABEL_CHARACTERS_MAX
    known = [
        Known(4_000_000 + number, 1 << 40, RANK_MAX, words, words) for number in range(AGENTS_MAX + AGENTS_RESERVED)
    ]
    before = await opened(tmp_path / "attached.json", writing, Clock())
    await before.open(tmp_path / "attached.json", lambda process: True, lambda: known)
    before.close()
    # WHEN the next daemon reads of them
    after = Returning(writing)
    await after.open(tmp_path / "attached.json", lambda process: True, tuple)
    assert [after.of(each.process) for each in known] == known


async def test_a_file_that_cannot_be_read_awaits_nobody(tmp_path: Path, writing: ThreadPoolExecutor) -> None:
    file = tmp_path / "attached.json"
    file.write_bytes(b'[[1,"x"]]')
    awaited = Returning(writing)
    await awaited.open(file, lambda process: True, tuple)
    assert awaited.of(ProcessId(1, 1)) is None


async def test_the_next_daemon_knows_who_was_attached_and_its_labels(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writing: ThreadPoolExecutor
) -> None:
    monkeypatch.setattr(returning, "WRITE_SECONDS", 0.0)
    file, table = tmp_path / "attached.json", ProcessTable(labelled=served.registry.labelled)
    await served.registry.remember(file, table)
    fake, _ = await served.attached(rank=3, job="j1")
    await eventually(file.exists)  # a daemon that is killed has written it, too
    next_one = await _of(file, writing)
    assert next_one.of(ME) == MINE
    process = table.get(os.getpid())
    assert process is not None
    fake.close()
    await eventually(lambda: served.registry.get(ME) is None)
    await eventually(lambda: file.read_bytes() == b"[]")
    # Whoever selects by rank or job finds one that is awaited.
    served.registry.returning = next_one
    named = served.registry.labelled(replace(process, rank=None, job=""))
    assert (named.rank, named.job) == (3, "j1")


async def _of(file: Path, pool: ThreadPoolExecutor) -> Returning:
    found = Returning(pool)
    await found.open(file, lambda process: True, tuple)
    return found
