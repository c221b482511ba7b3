"""The seconds after a window, which its end waits for nowhere."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
from profd.capture import afterwards
from profd.capture.afterwards import Afterwards
from profd.capture.records import CaptureRecord, TargetRecord
from profd.model.load import Load, Stretch
from profd.targets.load import AFTER_SECONDS, LoadWatch

from tests.support.captures import process
from tests.support.waiting import eventually

DURING = Stretch(1, 2, 3, 4, 5)
AFTER = Stretch(6, 7, 8, 9, 10)


class Watch(LoadWatch):
    """Of a process that there is none of; its window is over."""

    def __init__(self, ended_at: float) -> None:
        self.ended_at = ended_at

    async def complete(self, load: Load) -> Load:
        return Load(load.before, load.during, AFTER)


class Heard:
    def __init__(self) -> None:
        self.loads: list[tuple[str, Load]] = []
        self.changed: list[CaptureRecord] = []
        self.afterwards = Afterwards(lambda source, load: self.loads.append((source, load)), self.changed.append)
        self.target = TargetRecord.of(process(100), "host")
        self.target.source, self.target.load = "pyspy", Load(during=DURING)
        self.record = CaptureRecord("c1", "", "alice", 1000, 0, targets=[self.target])


@pytest.fixture
async def heard() -> AsyncIterator[Heard]:
    found = Heard()
    yield found
    await found.afterwards.close()


async def test_what_came_after_is_told_and_written(heard: Heard) -> None:
    heard.afterwards.begin(heard.record, heard.target, Watch(time.monotonic() - AFTER_SECONDS))
    await eventually(lambda: bool(heard.changed))
    assert heard.loads == [("pyspy", Load(during=DURING, after=AFTER))]
    assert heard.target.load.after == AFTER
    assert heard.changed == [heard.record]


async def test_the_next_capture_of_the_process_ends_what_is_compared(heard: Heard) -> None:
    heard.afterwards.begin(heard.record, heard.target, Watch(time.monotonic() - afterwards.LEAST_SECONDS))
    await eventually(lambda: bool(heard.afterwards._recorded_anew))
    heard.afterwards.cut([heard.target.process])
    await eventually(lambda: bool(heard.changed))
    assert heard.loads[0][1].after == AFTER


async def test_what_was_too_short_is_not_known(heard: Heard) -> None:
    heard.afterwards.begin(heard.record, heard.target, Watch(time.monotonic() + 60))
    await eventually(lambda: bool(heard.afterwards._recorded_anew))
    heard.afterwards.cut([heard.target.process])
    await eventually(lambda: not heard.afterwards._tasks)
    assert (heard.target.load.after, heard.loads, heard.changed) == (None, [], [])


async def test_without_a_window_nobody_looks(heard: Heard) -> None:
    heard.target.load = Load()
    heard.afterwards.begin(heard.record, heard.target, Watch(time.monotonic()))
    heard.afterwards.begin(heard.record, heard.target, None)
    assert not heard.afterwards._tasks
