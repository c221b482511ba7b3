"""Look-ups over columns against loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import _engine

INT64 = st.integers(-(2**63), 2**63 - 1)
I64, I32, U8 = np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int32), np.zeros(3, dtype=np.uint8)


def above(parent: list[int], wanted: list[bool], row: int) -> int:
    seen = set()
    while row not in seen:
        seen.add(row)
        row = parent[row]
        if row < 0:
            return -1
        if wanted[row]:
            return row
    return -1  # a circle


@given(st.data(), st.integers(1, 30))
def test_nearest_above_equals_climbing(data, count):
    parent = data.draw(st.lists(st.integers(-1, count - 1), min_size=count, max_size=count))
    wanted = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    rows = data.draw(st.lists(st.integers(0, count - 1), max_size=40))
    found = _engine.nearest_above(
        np.array(parent, dtype=np.int64), np.array(wanted, dtype=np.uint8), np.array(rows, dtype=np.int64)
    )
    assert found.tolist() == [above(parent, wanted, row) for row in rows]


def test_nearest_above_on_a_long_chain():
    count = 200_000
    parent = np.arange(count, dtype=np.int64) - 1
    wanted = np.zeros(count, dtype=np.uint8)
    wanted[0] = 1
    found = _engine.nearest_above(parent, wanted, np.arange(count, dtype=np.int64))
    assert found[0] == -1
    assert (found[1:] == 0).all()


@given(
    st.lists(st.tuples(st.integers(-4, 9) | INT64, st.booleans()), max_size=30),
    st.lists(st.integers(-4, 9) | INT64, max_size=30),
)
def test_match_ids_equals_counting(rows, wanted):
    ids = [value if among and value > 0 else None for value, among in rows]
    found = _engine.match_ids(
        np.array([value for value, _ in rows], dtype=np.int64),
        np.array([among for _, among in rows], dtype=np.uint8),
        np.array(wanted, dtype=np.int64),
    )
    assert found.tolist() == [ids.index(value) if ids.count(value) == 1 else -1 for value in wanted]


@given(st.data(), st.integers(1, 30))
def test_next_on_thread_equals_looking(data, count):
    thread = data.draw(st.lists(st.integers(-1, 2), min_size=count, max_size=count))
    among = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    rows = sorted(data.draw(st.lists(st.integers(0, count - 1), max_size=40)))
    found = _engine.next_on_thread(
        np.array(thread, dtype=np.int32), np.array(among, dtype=np.uint8), np.array(rows, dtype=np.int64)
    )
    after = [[at for at in range(row + 1, count) if among[at] and thread[at] == thread[row]] for row in rows]
    assert found.tolist() == [(later or [-1])[0] for later in after]


@given(st.lists(st.integers(-5, 5), max_size=30), st.lists(st.integers(-9, 9), min_size=1, max_size=4))
def test_recode_equals_indexing(codes, table):
    out = np.zeros(len(codes), dtype=np.int32)
    _engine.recode(np.array(codes, dtype=np.int32), np.array(table, dtype=np.int32), out)
    assert out.tolist() == [table[code] if 0 <= code < len(table) else table[-1] for code in codes]


@given(st.lists(st.booleans(), max_size=300), st.integers(0, 20), st.sampled_from([np.int64, np.int32]))
def test_fill_nulls_equals_a_loop(valid, offset, dtype):
    bits = np.packbits(np.array([True] * offset + valid, dtype=bool), bitorder="little")
    values = np.arange(len(valid), dtype=dtype)
    _engine.fill_nulls(values, bits, offset, -7)
    assert values.tolist() == [at if known else -7 for at, known in enumerate(valid)]


@given(st.data(), st.integers(0, 25))
def test_subtree_sums_equal_a_loop(data, count):
    # Forests in any order of rows: of equal starts the child may come first.
    order = data.draw(st.permutations(range(count)))
    parent = [-1] * count
    for place, row in enumerate(order):
        if place and data.draw(st.booleans()):
            parent[row] = order[data.draw(st.integers(0, place - 1))]
    own = data.draw(st.lists(st.integers(-99, 99), min_size=count, max_size=count))
    total = list(own)
    for row in range(count):
        at = parent[row]
        while at >= 0:
            total[at] += own[row]
            at = parent[at]
    sums = _engine.subtree_sums(np.array(own, dtype=np.int64), np.array(parent, dtype=np.int64))
    assert sums.tolist() == total


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: _engine.nearest_above(I64 + 3, U8, I64), "beyond the last row"),
        (lambda: _engine.nearest_above(I64, U8, I64 + 3), "out of range"),
        (lambda: _engine.nearest_above(I64, U8, I64 - 1), "out of range"),
        (lambda: _engine.nearest_above(I64, U8[:1], I64), "wanted has 1"),
        (lambda: _engine.match_ids(I64, U8[:1], I64), "among has 1"),
        (lambda: _engine.next_on_thread(I32, U8[:1], I64), "among has 1"),
        (lambda: _engine.next_on_thread(I32, U8, I64 + 3), "out of range"),
        (lambda: _engine.next_on_thread(I32, U8, np.array([1, 0])), "do not ascend"),
        (lambda: _engine.next_on_thread(I32 + 5, U8, I64, threads_max=5), "limit of tracks"),
        (lambda: _engine.recode(I32, I32[:0], I32.copy()), "no entries"),
        (lambda: _engine.recode(I32, I32, np.zeros(1, dtype=np.int32)), "out has 1"),
        (lambda: _engine.fill_nulls(I64.copy(), np.zeros(1, dtype=np.uint8), 6, 0), "fewer marks"),
        (lambda: _engine.subtree_sums(I64, I64 + 3), "beyond the last row"),
    ],
)
def test_malformed_columns_are_value_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
