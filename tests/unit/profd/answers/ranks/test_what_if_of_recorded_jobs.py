"""What `critical` says a late rank costs, on real jobs over gloo that were recorded on a busy host of two cores.

Steps with the plant and without it take turns in each: what the latter last is the truth.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.ours.without_plant import Pair, kept

JOBS = Path(__file__).parents[4] / "corpus/what_if/jobs.npz"


@pytest.fixture(scope="module")
def pairs() -> dict[str, Pair]:
    return {name: steps.compared() for name, steps in kept(JOBS).items()}


def test_the_range_has_the_steps_without_the_plant(pairs: dict[str, Pair]) -> None:
    """In waits-102 because meetings to which ranks come together may be delayed by four fifths more."""
    assert [name for name, one in pairs.items() if not one.within] == []


def test_of_a_host_this_busy_only_work_that_waits_is_told(pairs: dict[str, Pair]) -> None:
    """Of the other jobs the middles of the ranges are within 10 % in 6 of 9: no number may stand there."""
    told = {name: one for name, one in pairs.items() if one.said.told}
    assert list(told) == ["waits-101", "waits-102"]
    assert all(one.close for one in told.values())
    assert sum(one.close for name, one in pairs.items() if not name.startswith("waits")) == 6
