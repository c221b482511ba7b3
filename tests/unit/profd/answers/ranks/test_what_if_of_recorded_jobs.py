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
    """In waits-102 because meetings to which ranks come together may be delayed more."""
    assert [name for name, one in pairs.items() if not one.within] == []


def test_nothing_is_told_of_a_host_that_is_this_busy(pairs: dict[str, Pair]) -> None:
    """The middles of the ranges are within 10 % in 7 of 12, not in 8 of 10: no number may stand there."""
    assert not [name for name, one in pairs.items() if one.said.told]
    assert sum(one.close for one in pairs.values()) == 7
