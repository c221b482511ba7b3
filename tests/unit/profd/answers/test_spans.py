"""Sets of moments, against the slowest way to say the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.answers.spans import Spans

EDGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8)


def spans(pairs: list[tuple[int, int]]) -> Spans:
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Spans.union(edges[:, 0], edges[:, 1])


def moments(pairs: list[tuple[int, int]]) -> set[int]:
    return {moment for first, last in pairs for moment in range(first, last)}


def of(found: Spans) -> set[int]:
    assert (found.start < found.end).all()
    assert (found.start[1:] > found.end[:-1]).all()
    return moments(list(zip(found.start.tolist(), found.end.tolist(), strict=True)))


@given(EDGES, EDGES)
def test_union_common_and_without(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    left, right = spans(one), spans(other)
    assert of(left) == moments(one)
    assert left.total == len(moments(one))
    assert of(left.common(right)) == moments(one) & moments(other)
    assert of(left.without(right)) == moments(one) - moments(other)


@given(EDGES, st.lists(st.tuples(st.integers(-3, 33), st.integers(0, 9)), min_size=1, max_size=6))
def test_how_much_of_each_stretch_they_cover(one: list[tuple[int, int]], stretches: list[tuple[int, int]]) -> None:
    first = np.array([start for start, _ in stretches])
    last = first + np.array([lasting for _, lasting in stretches])
    expected = [len(moments(one) & set(range(a, b))) for a, b in zip(first.tolist(), last.tolist(), strict=True)]
    assert spans(one).within(first, last).tolist() == expected
    assert spans(one).holds(first).tolist() == [moment in moments(one) for moment in first.tolist()]


@pytest.mark.parametrize("edge", [np.iinfo(np.int64).min, np.iinfo(np.int64).max - 5])
def test_the_ends_of_time(edge: int) -> None:
    one = spans([(edge, edge + 4)])
    assert of(one.without(spans([(edge + 1, edge + 2)]))) == {edge, edge + 2, edge + 3}
