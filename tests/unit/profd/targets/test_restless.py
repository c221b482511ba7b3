"""Processes that are another program at each look: lists of all leave them alone, who has or names them does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from profd.limits import PROC_EXECS_SEEN_MAX, PROC_RESTLESS_SECONDS, PROC_RESTLESS_SECONDS_MAX
from profd.targets import table as table_module
from profd.targets.process import ProcessId
from profd.targets.restless import Restless
from profd.targets.table import ProcessTable

from tests.unit.profd.targets.proc_tree import Fake

ONE, OTHER = ProcessId(1, 1), ProcessId(2, 1)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def changed(restless: Restless, times: int) -> Restless:
    for _ in range(times):
        restless.changed(ONE)
    return restless


def test_a_launcher_that_becomes_its_job_is_looked_at() -> None:
    assert not changed(Restless(Clock()), PROC_EXECS_SEEN_MAX).left_alone(ONE)


def test_one_that_goes_on_is_left_alone_for_twice_as_long_each_time() -> None:
    clock = Clock()
    restless = changed(Restless(clock), PROC_EXECS_SEEN_MAX)
    for seconds in (PROC_RESTLESS_SECONDS, 2 * PROC_RESTLESS_SECONDS, 4 * PROC_RESTLESS_SECONDS):
        restless.changed(ONE)
        clock.now += seconds - 0.1
        assert restless.left_alone(ONE)
        assert not restless.left_alone(OTHER)
        clock.now += 0.1
        assert not restless.left_alone(ONE)
    changed(restless, 100)
    clock.now += PROC_RESTLESS_SECONDS_MAX
    assert not restless.left_alone(ONE)
    # AND what it did long ago is not held against it
    clock.now += PROC_RESTLESS_SECONDS_MAX + 1
    restless.changed(ONE)
    assert not restless.left_alone(ONE)


class Storm:
    """A made-up process that has executed another program by each look, and what was asked of it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        monkeypatch.setattr(table_module, "Restless", lambda: Restless(self.clock))
        self.fake = Fake(root, 8, maps=["/usr/bin/python3.11"], environ={"RANK": "3"}).write()
        self.table = ProcessTable(root)
        self.looks = 0
        look = ProcessTable._look

        def noted(*given: Any) -> Any:
            self.looks += 1
            return look(*given)

        monkeypatch.setattr(ProcessTable, "_look", noted)

    def exec(self) -> None:
        self.fake.stack_base += 1
        self.fake.write()


def test_programs_that_are_executed_all_the_time_are_looked_at_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storm = Storm(tmp_path, monkeypatch)
    for _ in range(20):
        storm.exec()
        storm.table.snapshot()
    assert storm.looks == PROC_EXECS_SEEN_MAX + 2  # the first of them saw no change
    # WHEN it is left alone THEN it is there by its name, and nothing that was read of an earlier program is told
    [process] = storm.table.snapshot()
    assert (process.id.pid, process.command, process.rank) == (8, "[python3]", None)
    assert "another program" in process.unread
    # AND whoever has it, or names it, sees it
    storm.exec()
    named = storm.table.get(8)
    assert named is not None
    assert (named.rank, named.unread) == (3, "")
    storm.exec()
    [own] = storm.table.owned(storm.fake.folder.stat().st_uid)
    assert (own.rank, own.unread) == (3, "")
    # AND once it stays as it is, everybody who lists it
    [process] = storm.table.snapshot()
    assert (process.rank, process.unread) == (3, "")


def test_a_job_that_only_changes_its_name_is_looked_at_by_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a rank that shows its progress as the name of its main thread THEN an admin finds it by its job."""
    storm = Storm(tmp_path, monkeypatch)
    for step in range(20):
        storm.fake.name = f"train {step}"
        storm.fake.write()
        [process] = storm.table.snapshot()
        assert (process.name, process.rank, process.unread) == (f"train {step}", 3, "")
