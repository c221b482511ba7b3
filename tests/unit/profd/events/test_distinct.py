"""Different rows of columns, as numpy tells them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from profd.events.distinct import distinct

SMALL = st.sampled_from([0, 1, 2, -1, -(1 << 63), (1 << 63) - 1])
ROWS = st.integers(1, 3).flatmap(lambda width: st.lists(st.tuples(*[SMALL] * width), min_size=1, max_size=30))


@given(ROWS)
def test_it_says_what_numpy_says_of_rows(rows: list[tuple[int, ...]]) -> None:
    columns = np.array(rows, dtype=np.int64).T
    _, first, which = np.unique(columns.T, axis=0, return_index=True, return_inverse=True)
    found = distinct(*columns)
    assert [each.tolist() for each in found] == [first.tolist(), which.reshape(-1).tolist()]


def test_of_no_rows_there_are_none() -> None:
    first, which = distinct(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32))
    assert (len(first), len(which)) == (0, 0)
