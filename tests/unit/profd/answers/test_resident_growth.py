"""The detector `resident_growth` by hand: memory of the process that grows by looks from outside."""

from __future__ import annotations

from pathlib import Path

import pytest
from profd.answers.detectors import resident_growth
from profd.answers.finding import NOTHING, Finding, Silence

from tests.support.resident import MB, SECOND, looked
from tests.support.stepped_traces import call, facts, training


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (
            [100 * MB + n * MB for n in range(41)],
            "grows steadily, by 10 MB/s (40 MB in the 4 s of the looks, to 140 MB)",
        ),
        ([100 * MB + (n > 20) * 40 * MB for n in range(41)], None),
    ],
    ids=["steady", "jump"],
)
def test_memory_of_the_process_that_grows(own: list[int], said: str | None, tmp_path: Path) -> None:
    """Without steps and without allocations: by looks from outside."""
    verdict = resident_growth.look(facts([call("aten::mm", 0, 900)], tmp_path, resident=looked(own)))
    if said is None:
        assert verdict == NOTHING
        return
    assert isinstance(verdict, Finding), verdict
    finding = verdict
    assert said in finding.sentence
    assert finding.bound_ns is None
    assert finding.numbers == {
        "grown_bytes": 40 * MB,
        "lasted_ns": 4_000_000_000,
        "own_begin_bytes": 100 * MB,
        "own_end_bytes": 140 * MB,
        "looks": 41,
    }
    assert "--memory --stacks" in finding.confirm


@pytest.mark.parametrize(
    ("seconds", "steps", "told"), [(3, 0, False), (40, 0, True), (3, 1900, False), (3, 2100, True)]
)
def test_memory_of_a_process_that_may_still_import(seconds: int, steps: int, told: bool, tmp_path: Path) -> None:
    """GIVEN looks for 4 s, and steps of 1 ms; an optimizer's first step imports, too."""
    growing = looked([100 * MB + n * MB for n in range(41)], age_ns=seconds * SECOND)
    events = training(lambda number: [], steps) if steps else [call("aten::mm", 0, 900)]
    verdict = resident_growth.look(facts(events, tmp_path, resident=growing))
    if told:
        assert isinstance(verdict, Finding), verdict
        assert verdict.numbers["grown_bytes"] == 40 * MB
    else:
        assert isinstance(verdict, Silence)
        assert "is 3 s old and marks steps for less than half of the window" in verdict.lacking


@pytest.mark.parametrize(
    ("own", "lacking"), [([], "was not looked at"), ([MB, 9 * MB], "20 looks")], ids=["unknown", "two"]
)
def test_memory_of_the_process_that_is_not_known(own: list[int], lacking: str, tmp_path: Path) -> None:
    verdict = resident_growth.look(facts([call("aten::mm", 0, 900)], tmp_path, resident=looked(own)))
    assert isinstance(verdict, Silence)
    assert lacking in verdict.lacking
