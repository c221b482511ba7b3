from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import _engine

from tests.unit.profd.engine import twins

GROUPS, STEPS = 3, 6
VALUE = st.integers(-5, 5) | st.integers(-(2**62), 2**62) | st.just(twins.ABSENT)


def column(values):
    return np.array(values, dtype=np.int64)


def expected(rows):
    """Each group's sums in all steps, written out."""
    times = [[0] * STEPS for _ in range(GROUPS)]
    for group, step, value in rows:
        if value != twins.ABSENT:
            times[group][step] = twins.clamp(times[group][step] + value)
    seen = [[float(value) for value in of_group] for of_group in times]
    medians = [statistics.median(of_group) for of_group in seen]
    deviations = [
        statistics.median(abs(value - median) for value in of_group)
        for of_group, median in zip(seen, medians, strict=True)
    ]
    return medians, deviations


@given(st.lists(st.tuples(st.integers(0, GROUPS - 1), st.integers(0, STEPS - 1), VALUE), max_size=40))
def test_typical_of_steps_equals_its_twin(rows):
    group, step, values = map(column, zip(*rows, strict=True)) if rows else (column([]),) * 3
    found = _engine.typical_of_steps(group, GROUPS, step, STEPS, values)
    assert tuple(part.tolist() for part in found) == expected(rows)


@pytest.mark.parametrize(("group", "step"), [(GROUPS, 0), (-1, 0), (0, STEPS), (0, -1)])
def test_what_is_out_of_range_is_refused(group, step):
    with pytest.raises(ValueError, match="out of range"):
        _engine.typical_of_steps(column([group]), GROUPS, column([step]), STEPS, column([1]))
