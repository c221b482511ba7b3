"""Unions and sweeps of intervals against the points of time they hold."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from profd.query.intervals import Ordered, Sweep, merged, windows

Spans = list[tuple[int, int]]  # start, length
SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), max_size=12)


def arrays(spans: Spans) -> tuple[np.ndarray, np.ndarray]:
    start = np.array([start for start, _ in spans], dtype=np.int64)
    return start, start + np.array([length for _, length in spans], dtype=np.int64)


def held(spans: Spans, time: int) -> int:
    """How many of them are open from `time` to the next."""
    return sum(start <= time < start + length for start, length in spans)


@given(SPANS)
def test_the_union(spans: Spans) -> None:
    start, end = merged(*arrays(spans))
    assert (start < end).all()
    assert (start[1:] > end[:-1]).all()  # apart
    covered = {time for a, b in zip(start.tolist(), end.tolist(), strict=True) for time in range(a, b)}
    assert covered == {time for time in range(60) if held(spans, time)}


@given(SPANS, SPANS)
def test_how_many_are_open(first: Spans, second: Spans) -> None:
    sweep = Sweep(arrays(first), arrays(second))
    one, two = sweep.opened
    assert sweep.total(one > 1) == sum(held(first, time) > 1 for time in range(60))
    both = sum(held(first, time) == 0 and held(second, time) > 0 for time in range(60))
    assert sweep.total((one == 0) & (two > 0)) == both
    start, end = merged(*arrays(second))
    shared = sum(held(first, time) > 1 and held(second, time) > 0 for time in range(60))
    assert sweep.within(one > 1, start, end) == shared


@given(SPANS, SPANS, st.integers(1, 5))
def test_in_windows_as_at_once(first: Spans, second: Spans, every: int) -> None:
    ordered = [sorted(spans, key=sum) for spans in (first, second)]
    known = [Ordered(*arrays(spans)) for spans in ordered]
    moments = [np.sort(array) for spans in ordered for array in arrays(spans)]
    cut = [(one, Sweep.of_window(one, *(spans.within(*one) for spans in known))) for one in windows(every, *moments)]
    both = sum(sweep.total((sweep.opened[0] == 0) & (sweep.opened[1] > 1)) for _, sweep in cut)
    assert both == sum(held(first, time) == 0 and held(second, time) > 1 for time in range(60))
    most = max((int(sweep.opened[1].max()) for _, sweep in cut), default=0)
    assert most == max(held(second, time) for time in range(60))
    for (low, high), _ in cut:
        assert all(sum(low < moment < high for moment in set(array.tolist())) < every for array in moments)


def test_nothing_at_all() -> None:
    none = np.zeros(0, dtype=np.int64)
    assert [len(part) for part in merged(none, none)] == [0, 0]
    assert Sweep((none, none)).total(np.zeros(0, dtype=bool)) == 0
