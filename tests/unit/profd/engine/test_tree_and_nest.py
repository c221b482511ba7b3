"""Where the stored tree (stack replay) and strict interval nesting agree, and where they must not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from profd import _engine

from tests.unit.profd.engine.twins import ABSENT, FRAME, NESTS, TIMED

Interval = tuple[int, int]


def parents(intervals: list[Interval]) -> tuple[list[int], list[int], int, list[int], list[int]]:
    """(the tree's parents, nesting's, partial overlaps, the tree's self times, nesting's) on one thread."""
    start = np.array([interval[0] for interval in intervals], dtype=np.int64)
    end = np.array([interval[1] for interval in intervals], dtype=np.int64)
    thread = np.zeros(len(intervals), dtype=np.int32)
    builder = _engine.TreeBuilder(1)
    tree, _, tree_self = builder.feed(start, end, thread, np.full(len(intervals), NESTS | FRAME | TIMED, np.uint8))
    row, late = builder.finish()
    tree_self = tree_self.copy()
    tree_self[row] = late
    strict, strict_self, _ = _engine.nest(start, end, thread, np.ones(len(intervals), dtype=np.uint8))
    return tree.tolist(), strict.tolist(), builder.partial_overlap, tree_self.tolist(), strict_self.tolist()


def overlap(intervals: list[Interval]) -> bool:
    """Whether two of them overlap without one containing the other."""
    return any(
        first[0] < second[0] < first[1] < second[1] for first in intervals for second in intervals if first != second
    )


@given(st.lists(st.tuples(st.integers(0, 25), st.integers(-3, 12)), max_size=14))
def test_they_agree_without_partial_overlap(given_rows: list[tuple[int, int]]) -> None:
    intervals = sorted(((start, start + lasting) for start, lasting in given_rows), key=lambda interval: interval[0])
    assume(not overlap(intervals))
    tree, strict, overlaps, tree_self, strict_self = parents(intervals)
    assert overlaps == 0
    assert tree == strict
    assert tree_self == strict_self


@pytest.mark.parametrize(
    ("case", "intervals", "tree", "strict"),
    [
        # A row that outlives the frame in which it starts is its child; strictly it is in nothing.
        ("partial overlap", [(0, 10), (5, 15)], [-1, 0], [-1, -1]),
        # ... or in what encloses both.
        ("partial overlap inside", [(0, 20), (1, 10), (5, 15)], [-1, 0, 1], [-1, 0, 0]),
        # What starts after the frame has ended, in the part that sticks out: the tree has closed both.
        ("after a partial overlap", [(0, 10), (5, 15), (12, 14)], [-1, 0, -1], [-1, -1, 1]),
        # Without an end a row lasts as long as its parent, strictly it has no length.
        ("no end", [(0, 10), (2, ABSENT), (3, 4)], [-1, 0, 1], [-1, 0, 0]),
    ],
)
def test_they_differ(case: str, intervals: list[Interval], tree: list[int], strict: list[int]) -> None:
    found = parents(intervals)
    assert (found[0], found[1]) == (tree, strict), case


@pytest.mark.parametrize(
    ("case", "intervals", "both"),
    [
        ("equal ends", [(0, 10), (5, 10), (7, 10)], [-1, 0, 1]),
        ("equal starts", [(0, 4), (0, 10), (0, 7)], [2, -1, 1]),
        ("equal intervals", [(0, 10), (0, 10)], [-1, 0]),
        ("neighbours", [(0, 10), (10, 20)], [-1, -1]),
        ("no length at an end", [(0, 10), (10, 10)], [-1, -1]),
        ("an end before the start", [(0, 10), (5, 2), (6, 7)], [-1, 0, 0]),
    ],
)
def test_they_agree_on_ties(case: str, intervals: list[Interval], both: list[int]) -> None:
    found = parents(intervals)
    assert found[0] == found[1] == both, case
