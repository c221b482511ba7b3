from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import _engine

from tests.unit.profd.engine import twins

INT64 = st.integers(-(2**63), 2**63 - 1)
TIME = st.integers(0, 12) | INT64


@given(st.lists(st.integers(-3, 3) | INT64))
def test_argsort_is_stable(keys):
    given_keys = np.array(keys, dtype=np.int64)
    expected = np.argsort(given_keys, kind="stable")
    assert _engine.argsort(given_keys).tolist() == expected.tolist()


def call_nest(rows, include):
    return _engine.nest(
        np.array([row.start for row in rows], dtype=np.int64),
        np.array([row.end for row in rows], dtype=np.int64),
        np.array([row.thread for row in rows], dtype=np.int32),
        np.array(include, dtype=np.uint8),
    )


@given(st.lists(st.tuples(TIME, TIME, st.integers(-1, 2), st.booleans()), max_size=40))
def test_nest_equals_its_twin(given_rows):
    given_rows.sort(key=lambda row: row[0])
    rows = [twins.Row(*row[:3]) for row in given_rows]
    include = [row[3] for row in given_rows]
    parent, self_time, crossed = call_nest(rows, include)
    expected_parent, expected_self = twins.nest(rows, include)
    assert bool(crossed) == twins.crossings(rows, include)
    assert parent.tolist() == expected_parent
    if all(abs(row.start) < 2**40 and abs(row.end) < 2**40 for row in rows):
        assert self_time.tolist() == expected_self  # otherwise sums saturate in another order


def test_nest_by_hand():
    # GIVEN a call with two children, one of them in the first microsecond, and an overlap
    rows = [
        twins.Row(0, 10, 0),  # 0: outer
        twins.Row(0, 4, 0),  # 1: same start, shorter: inside 0
        twins.Row(4, 10, 0),  # 2: ends with it: inside 0
        twins.Row(8, 12, 0),  # 3: overlaps 0 and 2: inside nothing
        twins.Row(9, 10, 0),  # 4: inside 3, which starts last
        twins.Row(9, 10, 1),  # 5: another thread
        twins.Row(12, 12, 0),  # 6: at the end of 3: not inside
    ]
    parent, self_time, crossed = call_nest(rows, [True] * 7)
    assert crossed == 2
    assert parent.tolist() == [-1, 0, 0, -1, 3, -1, -1]
    assert self_time.tolist() == [0, 4, 6, 3, 1, 1, 0]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2) | INT64), max_size=60))
def test_groups_and_sums_equal_a_dictionary(rows):
    first, second = ([row[i] for row in rows] for i in (0, 1))
    group, first_row = _engine.group_rows([np.array(first, dtype=np.int64), np.array(second, dtype=np.int64)])
    numbers: dict[tuple[int, int], int] = {}
    for row in rows:
        numbers.setdefault(row, len(numbers))
    assert group.tolist() == [numbers[row] for row in rows]
    assert [rows[row] for row in first_row.tolist()] == list(numbers)
    small = [value if abs(value) < 2**40 else twins.ABSENT for value in second]
    sums = _engine.sum_by(group, len(numbers), np.array(small, dtype=np.int64))
    expected = [0] * len(numbers)
    for number, value in zip(group.tolist(), small, strict=True):
        expected[number] += 0 if value == twins.ABSENT else value
    assert sums.tolist() == expected


def test_group_rows_grows():
    keys = np.arange(5000, dtype=np.int64) % 3001
    group, first = _engine.group_rows([keys])
    assert group.tolist() == keys.tolist()
    assert first.tolist() == list(range(3001))


I64, I32, U8 = np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int32), np.zeros(3, dtype=np.uint8)


@pytest.mark.parametrize(
    "call",
    [
        lambda: _engine.argsort(I32),  # type: ignore[arg-type]
        lambda: _engine.argsort(np.zeros((2, 2), dtype=np.int64)),
        lambda: _engine.argsort(np.zeros(6, dtype=np.int64)[::2]),
        lambda: _engine.nest(I64, I64, I64, U8),  # type: ignore[arg-type]
        lambda: _engine.nest(I64, I64, I32, I32),  # type: ignore[arg-type]
        lambda: _engine.group_rows([I32]),  # type: ignore[list-item]
        lambda: _engine.sum_by(I64, -1, I64),
    ],
)
def test_wrong_dtypes_and_shapes_are_type_errors(call):
    with pytest.raises(TypeError):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: _engine.argsort(np.frombuffer(bytes(25), np.int64, 3, 1)), "not aligned"),
        (lambda: _engine.nest(I64, np.frombuffer(bytes(25), np.int64, 3, 1), I32, U8), "end is not aligned"),
        (lambda: _engine.nest(I64, I64[:2], I32, U8), "end has 2 rows where 3 are expected"),
        (lambda: _engine.nest(I64, I64, I32[:1], U8), "thread has 1"),
        (lambda: _engine.nest(np.array([1, 0, 2]), I64, I32, U8), "start order"),
        (lambda: _engine.nest(I64, I64, I32 + 5, U8, threads_max=5), "limit of tracks"),
        (lambda: _engine.group_rows([]), "at least one column"),
        (lambda: _engine.group_rows([I64, I64[:1]]), "a column has 1"),
        (lambda: _engine.sum_by(I64 + 3, 3, I64), "out of range"),
        (lambda: _engine.sum_by(I64 - 1, 3, I64), "out of range"),
        (lambda: _engine.sum_by(I64, 3, I64[:1]), "values has 1"),
    ],
)
def test_malformed_columns_are_value_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@st.composite
def forests(draw):
    """(own, parent) in an order that is no order of the tree."""
    size = draw(st.integers(0, 30))
    above = [draw(st.integers(-1, row - 1)) for row in range(size)]
    place = draw(st.permutations(range(size)))
    parent = [0] * size
    for row, up in enumerate(above):
        parent[place[row]] = place[up] if up >= 0 else -1
    return draw(st.lists(st.integers(-(2**40), 2**40), min_size=size, max_size=size)), parent


@given(forests())
def test_subtree_sums_equal_their_twin(forest):
    own, parent = forest
    total = _engine.subtree_sums(np.array(own, dtype=np.int64), np.array(parent, dtype=np.int64))
    assert total.tolist() == twins.subtree_sums(own, parent)


def test_subtree_sums_end_on_circles_and_refuse_parents_that_are_not_there():
    total = _engine.subtree_sums(np.array([1, 2, 4, 8]), np.array([1, 0, 0, -1]))
    assert total.tolist() == [5, 2, 4, 8]
    assert _engine.subtree_sums(np.array([2**63 - 1, 1]), np.array([-1, 0])).tolist() == [2**63 - 1, 1]
    with pytest.raises(ValueError, match="beyond the last row"):
        _engine.subtree_sums(np.array([1]), np.array([1]))
    with pytest.raises(ValueError, match="rows"):
        _engine.subtree_sums(np.array([1]), np.array([-1, -1]))
