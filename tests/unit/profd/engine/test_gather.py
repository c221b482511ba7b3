"""Columns on their way to files, against loops: gather, presence, validity, compact_codes, roles."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import _engine

DTYPES = st.sampled_from([np.int64, np.int32, np.uint16, np.uint8, np.float64, np.bool_])
PARTS = st.lists(
    st.lists(st.integers(0, 1), max_size=9) | st.lists(st.integers(0, 255), max_size=9), min_size=1, max_size=5
)
COLUMN = st.lists(st.sampled_from([7, 8, 9]), max_size=300) | st.just([7] * 9000) | st.just([8] * 9000)


@given(st.data(), PARTS, DTYPES)
def test_gather_is_indexing_what_is_joined(data, parts, dtype):
    arrays = [np.array(part).astype(dtype) for part in parts]
    joined = np.concatenate(arrays)
    rows = st.integers(0, max(0, len(joined) - 1))
    order = np.array(data.draw(st.lists(rows, max_size=40 if len(joined) else 0)), dtype=np.int64)
    found = _engine.gather(arrays, order)
    assert found.dtype == joined.dtype
    assert found.tolist() == [joined[row].item() for row in order.tolist()]


@given(st.permutations(range(12)), st.integers(0, 12))
def test_places_equal_looking_for_each(order, count):
    found = _engine.places(np.array(order[:count], dtype=np.int64), 12)
    assert found.tolist() == [order.index(row) if row in order[:count] else -1 for row in range(12)]


@pytest.mark.parametrize("row", [-1, 3, 2**62])
def test_places_of_rows_that_are_not_there(row):
    with pytest.raises(ValueError, match="out of range"):
        _engine.places(np.array([row]), 3)


def test_what_gather_refuses():
    order = np.zeros(1, dtype=np.int64)
    with pytest.raises(ValueError, match="at least one array"):
        _engine.gather([], order)
    with pytest.raises(ValueError, match="of one type"):
        _engine.gather([np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.float64)], order)
    with pytest.raises(TypeError, match="1, 2, 4 or 8 bytes"):
        _engine.gather([np.zeros(1, dtype=np.complex128)], order)
    for row in (-1, 1, 2**62):
        with pytest.raises(ValueError, match="out of range"):
            _engine.gather([np.zeros(1, dtype=np.int64)], np.array([row]))
    with pytest.raises(ValueError, match="not aligned"):
        _engine.gather([np.frombuffer(bytes(17), dtype=np.int64, offset=1, count=1)], order)


@given(COLUMN, st.sampled_from([np.int64, np.int32, np.uint8]), st.integers(0, 300))
def test_presence_and_validity_equal_comparing(values, dtype, at):
    values = [*values[:at], 9, *values[at:]] if at < 100 else values
    there = [value != 7 for value in values]
    column = np.array(values, dtype=dtype)
    assert _engine.presence(column, 7) == (2 if values and all(there) else 1 if any(there) else 0)
    assert _engine.validity(column, 7).tolist() == np.packbits(np.array(there, dtype=bool), bitorder="little").tolist()


@given(st.lists(st.floats(), max_size=40))
def test_what_is_no_number_is_absent(values):
    there = [not math.isnan(value) for value in values]
    column = np.array(values, dtype=np.float64)
    assert _engine.presence(column, math.nan) == (2 if values and all(there) else 1 if any(there) else 0)
    assert (
        _engine.validity(column, math.nan).tolist()
        == np.packbits(np.array(there, dtype=bool), bitorder="little").tolist()
    )


@given(st.lists(st.integers(-1, 5), max_size=40))
def test_compact_codes_equal_their_sorted_set(codes):
    used = sorted({code for code in codes if code >= 0})
    places, words = _engine.compact_codes(np.array(codes, dtype=np.int32), 6)
    assert words.tolist() == used
    assert places.tolist() == [used.index(code) if code >= 0 else 0 for code in codes]


@pytest.mark.parametrize("code", [3, -2, 2**31 - 1, -(2**31)])
def test_codes_beyond_their_words_are_refused(code):
    with pytest.raises(ValueError, match="out of range"):
        _engine.compact_codes(np.array([0, code], dtype=np.int32), 3)


@given(
    st.lists(st.tuples(*[st.integers(0, 255)] * 2, st.sampled_from(b"Xbi"), st.integers(0, 1)), max_size=40),
    st.booleans(),
    st.booleans(),
)
def test_roles_equal_looking_them_up(rows, with_phase, with_async):
    tables = (np.arange(512) * 7 % 251).astype(np.uint8)
    overlapping_phases = (np.arange(256) == ord("b")).astype(np.uint8)
    kind, device_type, phase, is_async = (np.array([row[at] for row in rows], dtype=np.uint8) for at in range(4))
    found, seen = _engine.roles(
        kind,
        device_type,
        phase if with_phase else None,
        is_async if with_async else None,
        tables=tables,
        overlapping_phases=overlapping_phases,
        host_max=1,
        overlapping=4,
    )
    expected = []
    for of_kind, device, letter, alone in rows:
        role = int(tables[of_kind + (256 if device > 1 else 0)])
        overlaps = (with_phase and letter == ord("b")) or (with_async and alone)
        expected.append(role & 4 if overlaps else role)
    assert found.tolist() == expected
    assert seen == int(np.bitwise_or.reduce(np.array([0, *expected])))


def test_tables_of_roles_have_all_kinds():
    one, table = np.zeros(1, dtype=np.uint8), np.zeros(256, dtype=np.uint8)
    for tables, phases in ((table, table), (np.zeros(512, dtype=np.uint8), one)):
        with pytest.raises(ValueError, match="rows where"):
            _engine.roles(one, one, None, None, tables=tables, overlapping_phases=phases, host_max=1, overlapping=4)
