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
