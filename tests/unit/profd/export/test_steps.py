"""`--step`: a window by the numbers of training steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from profd.errors import BadInput
from profd.events import Kind, Tracks

from tests.support.tables import Event, store, table_of
from tests.unit.profd.export.exported import exported

TRACKS = Tracks(processes=[{"id": 42}], threads=[{"id": 1, "process": 0}])


def names(path: Path, **part: int) -> list[str]:
    document = json.loads(exported(path, "chrome", **part)[1])
    return sorted(event["name"] for event in document["traceEvents"] if event["ph"] == "X")


def steps(path: Path) -> Path:
    rows = [Event(f"op{n}", n * 100 + 10, n * 100 + 20, fields={"phase": ord("X")}) for n in range(4)]
    rows += [
        Event(f"ProfilerStep#{n + 7}", n * 100, n * 100 + 90, Kind.USER_ANNOTATION, fields={"phase": ord("X")})
        for n in range(4)
    ]
    return store(table_of(rows), path, tracks=TRACKS)


def test_by_the_numbers_of_torch(tmp_path: Path) -> None:
    path = steps(tmp_path / "t")
    assert names(path, first_step=8) == ["ProfilerStep#8", "op1"]
    assert names(path, first_step=8, last_step=9) == ["ProfilerStep#8", "ProfilerStep#9", "op1", "op2"]
    assert names(path, first_step=10, last_step=99) == ["ProfilerStep#10", "op3"]
    assert names(path, first_step=8, min_duration_ns=50) == ["ProfilerStep#8"]


def test_optimizer_steps_count_from_one(tmp_path: Path) -> None:
    step = "Optimizer.step#SGD.step"
    rows = [Event(step, n * 100, n * 100 + 10, Kind.USER_ANNOTATION, fields={"phase": ord("X")}) for n in range(3)]
    rows += [Event("op", 50, 60, fields={"phase": ord("X")}), Event("late", 150, 160, fields={"phase": ord("X")})]
    path = store(table_of(rows), tmp_path / "t", tracks=TRACKS)
    assert names(path, first_step=1) == [step, "op"]
    assert names(path, first_step=2) == [step, "late"]


def test_steps_that_there_are_not(tmp_path: Path) -> None:
    path = steps(tmp_path / "t")
    with pytest.raises(BadInput, match=r"no step 1; its steps are 7\.\.10"):
        exported(path, "chrome", first_step=1)
    with pytest.raises(BadInput, match="one of them"):
        exported(path, "chrome", first_step=8, from_ns=1)
    with pytest.raises(BadInput, match="none found"):
        exported(store(table_of([Event("a", 0, 5)]), tmp_path / "none", tracks=TRACKS), "chrome", first_step=1)
