"""Spans of many threads, united at once."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.query import covered
from profd.query.covered import Covered

FIRST, LAST = 1_000, 1_060
SPANS = st.lists(st.tuples(st.integers(FIRST, LAST), st.integers(0, 30), st.sampled_from([0, 1, 5, 2**31 - 1])))


def fed(spans: list[tuple[int, int, int]], at_once: int) -> Covered:
    """(start, length, thread) in start order, so many at a time."""
    found = Covered(FIRST)
    for begin in range(0, len(spans), at_once):
        start, length, thread = np.array(spans[begin : begin + at_once], dtype=np.int64).T
        found.add(thread, start, np.minimum(start + length, LAST))
    return found


@pytest.mark.parametrize("line", [1 << 62, 0])  # the longest; 0: ends are ranks
@given(spans=SPANS, at_once=st.integers(1, 9))
def test_it_is_the_union_of_each_thread_s_spans(line: int, spans: list[tuple[int, int, int]], at_once: int) -> None:
    spans.sort(key=lambda span: span[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(covered, "_LINE_MAX", line)
        found = fed(spans, at_once)
    slow: dict[int, set[int]] = {}
    for start, length, thread in spans:
        slow.setdefault(thread, set()).update(range(start, min(start + length, LAST)))
    twin = {thread: len(instants) for thread, instants in sorted(slow.items())}
    assert dict(zip(found.threads.tolist(), found.spent.tolist(), strict=True)) == twin


def test_as_many_calls_for_many_threads_as_for_few() -> None:
    """A trace of 190,000 threads took a worker 42 s, twenty calls for each."""

    def calls(threads: int) -> int:
        counted = 0

        def count(frame: object, event: str, what: object) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        found, each = Covered(FIRST), np.arange(threads)
        start = np.linspace(FIRST, 1 << 62, threads).astype(np.int64)  # however long the window is
        sys.setprofile(count)
        try:
            found.add(each, start, start + 1)
        finally:
            sys.setprofile(None)
        assert int(found.spent.sum()) == threads
        return counted

    calls(1)  # what numpy imports at first
    assert calls(1_000) == calls(10)
