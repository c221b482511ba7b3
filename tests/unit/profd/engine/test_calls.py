"""Times of calls against definitions that say what torch's tables do, one rule after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import _engine
from profd.query.roles import CALL, MARK, NESTS, SHOWN, WORK

from tests.unit.profd.engine.twins import clamp

INT64 = st.integers(-(2**63), 2**63 - 1)
I64, I32, U8 = np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int32), np.zeros(3, dtype=np.uint8)


@given(st.lists(st.tuples(INT64, INT64) | st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20))
def test_durations(spans: list[tuple[int, int]]) -> None:
    start, end = (np.array([span[side] for span in spans], dtype=np.int64) for side in (0, 1))
    assert _engine.durations(start, end).tolist() == [clamp(max(b - a, 0)) for a, b in spans]


@dataclass
class Call:
    """A row; `parent` is the number of another one or -1."""

    role: int
    name: int
    parent: int
    lasting: int
    own: int
    launched: int


@st.composite
def forests(draw: st.DrawFn) -> list[Call]:
    """Calls within calls, work and marks aside, in any order of rows."""
    count = draw(st.integers(0, 14))
    calls = []
    for _ in range(count):
        nests = draw(st.integers(0, 4)) > 0
        role = SHOWN | CALL | NESTS if nests else draw(st.sampled_from([0, MARK, SHOWN, SHOWN | CALL, SHOWN | WORK]))
        within = [at for at, call in enumerate(calls) if call.role & NESTS]
        parent = draw(st.sampled_from([-1, *within])) if nests else -1
        times = [draw(st.integers(0, 50)) for _ in range(3)]
        calls.append(Call(role, draw(st.integers(-1, 1)), parent, times[0], times[1], times[2] if nests else 0))
    place = draw(st.permutations(range(count)))
    shuffled = sorted(range(count), key=place.__getitem__)
    for call in calls:
        call.parent = place[call.parent] if call.parent >= 0 else -1
    return [calls[number] for number in shuffled]


def slow(calls: list[Call]) -> tuple[list[Call], list[int], list[bool], list[bool]]:
    """(calls with what they count with, device time with all below, which are calls, which were merged)."""

    def children(row: int) -> list[int]:
        return [at for at, call in enumerate(calls) if call.parent == row]

    def wrapped(row: int) -> int | None:
        below = children(row)
        alone = len(below) == 1 and calls[below[0]].name == calls[row].name
        return below[0] if alone else None

    def launched(row: int) -> int:
        inner = wrapped(row)
        return calls[row].launched if inner is None else launched(inner)

    def self_time(row: int) -> int:
        innermost = row
        while (inner := wrapped(innermost)) is not None:
            innermost = inner
        call = calls[innermost]
        return calls[row].lasting - (call.lasting - call.own)

    merged = [call.parent >= 0 and wrapped(call.parent) == row for row, call in enumerate(calls)]

    def device(row: int) -> int:
        return (0 if merged[row] else launched(row)) + sum(device(below) for below in children(row))

    counted = [
        bool(call.role & MARK) or (bool(call.role & SHOWN) and not merged[row]) for row, call in enumerate(calls)
    ]
    found, total = [], []
    for row, call in enumerate(calls):
        overlaps = bool(call.role & CALL) and not call.role & NESTS
        times = (call.lasting, 0 if overlaps or call.role & MARK else self_time(row), launched(row), device(row))
        if not counted[row]:
            times = (0, 0, 0, 0)
        elif call.role & WORK:
            times = (0, 0, call.lasting, call.lasting)
        found.append(Call(call.role, call.name, call.parent, *times[:3]))
        total.append(times[3])
    return found, total, counted, merged


@given(forests())
def test_call_times_equals_its_definition(calls: list[Call]) -> None:
    def column(field: str, dtype: type[np.generic] = np.int64) -> np.ndarray:
        return np.array([getattr(call, field) for call in calls], dtype=dtype)

    times = [column(field) for field in ("lasting", "own", "launched")]
    device, counted, merged = _engine.call_times(
        column("role", np.uint8), column("name", np.int32), column("parent"), *times
    )
    want, total, are_calls, were_merged = slow(calls)
    assert device.tolist() == total
    assert counted.astype(bool).tolist() == are_calls
    assert merged.astype(bool).tolist() == were_merged
    assert [values.tolist() for values in times] == [
        [getattr(call, field) for call in want] for field in ("lasting", "own", "launched")
    ]


def test_circles_of_parents_end() -> None:
    """Nothing is said of the rows on them."""
    role, name = np.full(4, SHOWN | CALL | NESTS, dtype=np.uint8), np.zeros(4, dtype=np.int32)
    for parent in ([1, 0, 0, 2], [0, 0, 1, 2], [1, 2, 3, 0]):
        times = [np.ones(4, dtype=np.int64) for _ in range(3)]
        device, counted, _ = _engine.call_times(role, name, np.array(parent), *times)
        assert len(device) == len(counted) == 4


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: _engine.durations(I64, I64[:1]), "end has 1"),
        (lambda: _engine.call_times(U8, I32, I64 + 3, I64, I64, I64), "beyond the last row"),
        (lambda: _engine.call_times(U8, I32[:1], I64, I64, I64, I64), "name has 1"),
        (lambda: _engine.call_times(U8, I32, I64[:1], I64, I64, I64), "parent has 1"),
        (lambda: _engine.call_times(U8, I32, I64, I64, I64[:1], I64), "own has 1"),
    ],
)
def test_malformed_columns_are_refused(call: Callable[[], object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        call()
