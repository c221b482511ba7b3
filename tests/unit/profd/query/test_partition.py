"""Parts against a dictionary of lists."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from profd.query.partition import Partition


@given(st.lists(st.tuples(st.integers(-2, 2), st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2)), max_size=30))
def test_parts_are_those_of_a_dictionary(pairs: list[tuple[int, int]]) -> None:
    expected = defaultdict(list)
    for row, pair in enumerate(pairs):
        expected[pair].append(row)
    keys = [np.array([pair[key] for pair in pairs], dtype=np.int64) for key in (0, 1)]
    parts = Partition(*keys)
    found = [(parts.values(part), parts.of(part).tolist()) for part in range(len(parts))]
    assert found == sorted(expected.items())
    for most in range(len(parts) + 1):
        assert sorted(parts.after(most).tolist()) == sorted(row for _, rows in found[most:] for row in rows)
