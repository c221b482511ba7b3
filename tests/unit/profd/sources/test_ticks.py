"""The source of `docs/adding-a-source.md`: what it decides by the process, and what it holds."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from profd.capture.choice import choose, in_order
from profd.capture.estimate import Headroom
from profd.gpu.lease_keeper import LeaseKeeper
from profd.model.capture import Options, Reason, State
from profd.sources.base import Session
from profd.targets.process import Process, ProcessId
from profd.targets.table import ProcessTable

from tests.support.captures import FakeSource, process
from tests.support.ticks_source import FULL, TicksSource
from tests.support.waiting import eventually

LONG_NS = 600_000_000_000


async def never(process: ProcessId) -> None:
    await asyncio.Event().wait()


def me() -> Process:
    found = ProcessTable().get(os.getpid())
    assert found is not None
    return found


async def test_its_rank_and_an_option_that_the_process_decides_about() -> None:
    leases = LeaseKeeper(never)
    ticks = TicksSource(leases)
    assert [source.name for source in in_order([ticks, FakeSource("pyspy"), FakeSource("sdk")])][-1] == "ticks"
    asked = Options(duration_ns=1, memory=True, strict=True)
    chosen = choose(process(), asked, [ticks], [], lambda: Headroom(None, None))
    assert (chosen.source, chosen.not_honoured) == (ticks, ())
    refused = choose(process(command=""), asked, [ticks], [], lambda: Headroom(None, None))
    assert (refused.source, refused.reason) == (None, Reason.NOT_HONOURED)
    assert "memory: a kernel thread has none of its own" in refused.message
    await leases.close()


@pytest.mark.parametrize("most", [0, 2])
async def test_it_holds_the_process_until_it_is_stopped_and_counts_what_it_could_not_keep(
    tmp_path: Path, most: int
) -> None:
    leases, mine, said = LeaseKeeper(never), me(), list[str]()
    ticks = TicksSource(leases, most)
    stop = asyncio.Event()
    session = Session("c1", tmp_path, stop, lambda state, doing: said.append(doing))
    running = asyncio.create_task(ticks.record(mine, Options(duration_ns=LONG_NS, sample_hz=1000.0), session))
    await eventually(lambda: FULL in said)
    assert not ticks.offer(mine).can
    assert (await ticks.record(mine, Options(duration_ns=1), session)).state is State.BUSY
    stop.set()
    done = await running
    assert (done.state, done.reason) == (State.DRAINING, Reason.NONE)
    assert ticks.offer(mine).can
    assert (tmp_path / "ticks.json").read_text().count('"ts"') == most
    [loss] = done.lost
    assert (loss.stage, loss.reason) == ("source", "too_many")
    await leases.close()
