"""Which collectives of two ranks are the same, by shifts: against a slow twin, and what many small groups cost."""

from __future__ import annotations

import sys
from types import FrameType

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from profd.answers.ranks import matching
from profd.answers.ranks.matching import AGREES_MIN, PAIRS_MIN, SHIFT_MAX, Collectives, Match, match

CALLS_MAX = 400  # of Python and into numpy; 129 shifts, one after the other, took 2,700


def called(*keys: int) -> Collectives:
    """Collectives of these keys, 100 us apart, which last for less and less."""
    end = np.cumsum(np.full(len(keys), 100_000)) + np.arange(len(keys)) ** 2 * 1000
    return Collectives(np.array(keys, dtype=np.int64), end - 20_000, end)


def shifts_one_by_one(first: list[int], second: list[int]) -> list[int]:
    found = []
    for shift in range(-SHIFT_MAX, SHIFT_MAX + 1):
        pairs = [(key, second[at + shift]) for at, key in enumerate(first) if 0 <= at + shift < len(second)]
        if len(pairs) < max(PAIRS_MIN, min(len(first), len(second)) / 2):
            continue
        if sum(one == other for one, other in pairs) / len(pairs) >= AGREES_MIN:
            found.append(shift)
    return found


keys = st.lists(st.integers(0, 1), min_size=PAIRS_MIN, max_size=40)


@given(keys, keys, st.integers(1, 5))
def test_shifts_at_which_calls_agree_property(one: list[int], other: list[int], times: int) -> None:
    """GIVEN calls that repeat or do not WHEN all shifts are looked at together THEN it is as one by one."""
    first, second = one * times, [*other, *one * times]
    assert matching._agreeing(called(*first), called(*second)) == shifts_one_by_one(first, second)
    assert matching._agreeing(called(*second), called(*first)) == shifts_one_by_one(second, first)


def test_a_small_group_is_not_looked_at_129_times() -> None:
    """A hostile capture has 100,000 pairs of groups and ranks: 64 ranks of 16,000 collectives on 2,000 streams."""
    calls = 0

    def count(_frame: FrameType, event: str, _of: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    first, second = called(*range(8)), called(*range(8))
    match(first, second)  # numpy imports parts of itself at their first use
    sys.setprofile(count)
    try:
        found = match(first, second)
    finally:
        sys.setprofile(None)
    assert isinstance(found, Match)
    assert calls < CALLS_MAX
