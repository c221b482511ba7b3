"""Groups and their sums against dictionaries."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import _engine

from tests.unit.profd.engine.twins import ABSENT, clamp

INT64 = st.integers(-(2**63), 2**63 - 1)
I64, I32, U8 = np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int32), np.zeros(3, dtype=np.uint8)
# Code, and for columns of 8, 32 and 64 bits how many codes there are: few enough for an array, and more than that.
SIZES = st.sampled_from([(7, 7, 7), (256, 5, 3), (256, 2**20, 2**30)])


@given(st.data(), st.integers(0, 40))
def test_allowed_is_the_and_of_what_each_column_allows(data: st.DataObject, count: int) -> None:
    small = data.draw(st.lists(st.integers(0, 255), min_size=count, max_size=count))
    coded = data.draw(st.lists(st.integers(-1, 4), min_size=count, max_size=count))
    of_small = data.draw(st.lists(st.integers(0, 255), min_size=256, max_size=256))
    of_coded = data.draw(st.lists(st.integers(0, 255), min_size=6, max_size=6))
    found = _engine.allowed(
        [
            (np.array(small, dtype=np.uint8), np.array(of_small, dtype=np.uint8)),
            (np.array(coded, dtype=np.int32), np.array(of_coded, dtype=np.uint8)),
        ]
    )
    assert found.tolist() == [of_small[a] & of_coded[b] for a, b in zip(small, coded, strict=True)]


@given(st.data(), SIZES, st.integers(0, 60))
def test_sum_groups_equals_a_dictionary(data: st.DataObject, sizes: tuple[int, int, int], count: int) -> None:
    def drawn(values: st.SearchStrategy[int]) -> list[int]:
        return data.draw(st.lists(values, min_size=count, max_size=count))

    columns = [drawn(st.integers(0, min(size, 4) - 1)) for size in sizes]
    columns[1] = drawn(st.sampled_from([-1, 0, sizes[1] - 2]))
    counted, values = drawn(st.integers(0, 2)), [drawn(INT64), drawn(st.integers(-5, 5))]
    keys = [
        (np.array(column, dtype=dtype), size)
        for column, dtype, size in zip(columns, (np.uint8, np.int32, np.int64), sizes, strict=True)
    ]
    group, first, counts, sums = _engine.sum_groups(
        keys, np.array(counted, dtype=np.uint8), [np.array(of_rows, dtype=np.int64) for of_rows in values]
    )

    numbers: dict[tuple[int, ...], int] = {}
    rows = list(zip(*columns, strict=True))
    assert group.tolist() == [numbers.setdefault(row, len(numbers)) for row in rows]
    assert first.tolist() == [rows.index(key) for key in numbers]
    assert counts.tolist() == [
        sum(counts_ != 0 for counts_, row in zip(counted, rows, strict=True) if row == key) for key in numbers
    ]
    for summed, of_rows in zip(sums, values, strict=True):
        want = dict.fromkeys(numbers, 0)
        for row, value in zip(rows, of_rows, strict=True):
            want[row] = want[row] if value == ABSENT else clamp(want[row] + value)
        assert summed.tolist() == list(want.values())


def test_many_groups() -> None:
    keys = np.arange(100_000, dtype=np.int64) * 1_000_003
    ones = np.ones(len(keys), dtype=np.uint8)
    group, first, count, (sums,) = _engine.sum_groups([(keys, 2**40)], ones, [keys])
    assert (group == np.arange(len(keys))).all()
    assert (first == np.arange(len(keys))).all()
    assert (count == 1).all()
    assert (sums == keys).all()


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: _engine.allowed([]), "at least one column"),
        (lambda: _engine.allowed([(I32, U8[:0])]), "no entries"),
        (lambda: _engine.allowed([(I32 + 3, U8)]), "out of range"),
        (lambda: _engine.allowed([(I32 - 2, U8)]), "out of range"),
        (lambda: _engine.allowed([(I32, U8), (I32[:1], U8)]), "different lengths"),
        (lambda: _engine.sum_groups([(I32 + 3, 3)], U8, []), "out of range"),
        (lambda: _engine.sum_groups([(I64 - 2, 3)], U8, []), "out of range"),
        (lambda: _engine.sum_groups([(U8 + 3, 3)], U8, []), "out of range"),
        (lambda: _engine.sum_groups([(I32, 0)], U8, []), "too many possible groups"),
        (lambda: _engine.sum_groups([(I32, 2**40), (I32, 2**40)], U8, []), "too many possible groups"),
        (lambda: _engine.sum_groups([(I32, 3)], U8[:1], []), "different lengths"),
        (lambda: _engine.sum_groups([(I32, 3)], U8, [I64[:1]]), "has 1 rows where 3"),
    ],
)
def test_malformed_columns_are_refused(call: Callable[[], object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        call()


@pytest.mark.parametrize("column", [np.zeros(3), np.zeros(3, dtype=np.int16)])
def test_other_types_are_refused(column: np.ndarray) -> None:
    with pytest.raises(TypeError):
        _engine.allowed([(column, U8)])
    with pytest.raises(TypeError):
        _engine.sum_groups([(column, 3)], U8, [])
