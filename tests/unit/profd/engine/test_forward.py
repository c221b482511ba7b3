"""Forward ops of backward ops against a look at all of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import _engine

FORWARD, BACKWARD = 1, 2
ROWS = st.lists(
    st.tuples(
        st.integers(0, 6),  # start
        st.integers(0, 3) | st.sampled_from([7, 8, 2**62, -(2**63)]),  # sequence
        st.integers(-1, 1),  # thread
        st.sampled_from([0, FORWARD, BACKWARD]),
    ),
    max_size=40,
)


@given(ROWS)
def test_match_forward_equals_looking(rows: list[tuple[int, int, int, int]]) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    forward, backward = ([at for at, row in enumerate(rows) if row[3] == what] for what in (FORWARD, BACKWARD))
    last, first = _engine.match_forward(
        np.array([row[0] for row in rows], dtype=np.int64),
        np.array([row[1] for row in rows], dtype=np.int64),
        np.array(forward, dtype=np.int64),
        np.array([rows[at][2] for at in forward], dtype=np.int32),
        np.array(backward, dtype=np.int64),
        np.array([rows[at][2] for at in backward], dtype=np.int32),
    )
    for found_last, found_first, at in zip(last.tolist(), first.tolist(), backward, strict=True):
        alike = [other for other in forward if rows[other][1:3] == rows[at][1:3]]
        begun = [other for other in alike if rows[other][0] <= rows[at][0]]
        assert found_last == max(begun, default=-1)
        assert found_first == min(alike, default=-1)


I64, I32 = np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int32)
TWO = np.array([0, 1])


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: _engine.match_forward(I64, I64[:1], TWO, I32[:2], TWO, I32[:2]), "sequence has 1"),
        (lambda: _engine.match_forward(I64, I64, TWO, I32, TWO, I32[:2]), "forward_thread has 3"),
        (lambda: _engine.match_forward(I64, I64, TWO, I32[:2], TWO, I32), "backward_thread has 3"),
        (lambda: _engine.match_forward(I64, I64, TWO + 2, I32[:2], TWO, I32[:2]), "out of range"),
        (lambda: _engine.match_forward(I64, I64, TWO, I32[:2], TWO[::-1].copy(), I32[:2]), "do not ascend"),
    ],
)
def test_malformed_columns_are_refused(call: Callable[[], object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        call()
