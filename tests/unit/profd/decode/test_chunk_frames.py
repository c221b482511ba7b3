"""Frames that were open when their tracer began, against how a program really nested."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from profd.decode.chunk_frames import OpenFrames
from profd.events import NO_END


@dataclass
class Span:
    """A call or a range of a program, as it really was; `end` None: it was open at the end."""

    start: int
    end: int | None
    frame: bool


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Span], int]:
    """Properly nested spans at times of their own, and a moment between them."""
    spans: list[Span] = []
    stack: list[Span] = []
    time = 0
    for frame in draw(st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=40)):
        time += 10
        if frame is None:
            if stack:
                stack.pop().end = time
        else:
            stack.append(Span(time, None, frame))
            spans.append(stack[-1])
    return spans, draw(st.integers(0, time // 10)) * 10 + 5


def _rows(spans: list[Span], began: int) -> tuple[list[int], list[int], list[Span]]:
    """Starts and ends as they are recorded, sorted. Open frames begin when the tracer does."""
    kept = [span for span in spans if not (span.frame and span.end is not None and span.end < began)]
    starts = [began if span.frame and span.start < began else span.start for span in kept]
    order = sorted(range(len(kept)), key=lambda at: starts[at])
    ends = [NO_END if kept[at].end is None else kept[at].end for at in order]
    return [starts[at] for at in order], [end for end in ends if end is not None], [kept[at] for at in order]


@given(program=programs(), batch=st.integers(1, 50))
def test_no_frame_overlaps_a_range_that_it_was_around(program: tuple[list[Span], int], batch: int) -> None:
    spans, began = program
    starts, ends, kept = _rows(spans, began)
    found: list[int] = []
    frames = OpenFrames()
    for at in range(0, len(kept), batch):
        start = np.array(starts[at : at + batch], dtype=np.int64)
        end = np.array(ends[at : at + batch], dtype=np.int64)
        thread = np.zeros(len(start), dtype=np.int32)
        opened = np.flatnonzero([span.frame and span.start < began for span in kept[at : at + batch]])
        frames.place(thread, start, end, np.ones(len(start), dtype=bool), opened, np.full(len(opened), -1))
        found += start.tolist()
    for span, at in zip(kept, found, strict=True):
        if not (span.frame and span.start < began):
            assert at == span.start, "what began in the window stays where it is"
            continue
        assert at <= began
        for other, other_start in zip(kept, found, strict=True):
            if other.frame or other.end is None or not other.start < began < other.end:
                continue
            around = span.end is None or other.end < span.end
            assert (at < other_start) == around


def test_threads_do_not_mix() -> None:
    start = np.array([10, 20, 50, 50], dtype=np.int64)
    end = np.array([60, 70, NO_END, NO_END], dtype=np.int64)
    thread = np.array([0, 1, 0, 1], dtype=np.int32)
    OpenFrames().place(thread, start, end, np.ones(4, dtype=bool), np.array([2, 3]), np.array([0, 0]))
    assert start.tolist() == [10, 20, 9, 19]


def test_no_frame_moves_beyond_its_floor() -> None:
    start = np.array([10, 20, 50, 50], dtype=np.int64)
    end = np.array([60, 55, NO_END, 57], dtype=np.int64)
    thread = np.zeros(4, dtype=np.int32)
    OpenFrames().place(thread, start, end, np.ones(4, dtype=bool), np.array([2, 3]), np.array([15, 16]))
    assert start.tolist() == [10, 20, 15, 19]


def test_what_is_open_and_remembered_is_bounded_and_the_rest_counted() -> None:
    # GIVEN room for two, and a batch that leaves three ranges open
    frames = OpenFrames(most=2)
    thread, all_of_them = np.zeros(3, dtype=np.int32), np.ones(3, dtype=bool)
    starts, ends = np.array([10, 20, 30], dtype=np.int64), np.array([300, 100, 200], dtype=np.int64)
    nothing = np.array([], dtype=np.int64)
    frames.place(thread, starts, ends, all_of_them, nothing, nothing)
    assert frames.forgotten == 1
    # WHEN frames come that were around them THEN those that last longest have not been forgotten
    start, end = np.array([50, 50, 50], dtype=np.int64), np.array([400, 250, 150], dtype=np.int64)
    frames.place(thread, start, end, all_of_them, np.arange(3), np.zeros(3, dtype=np.int64))
    assert start.tolist() == [9, 29, 50]


def test_rows_without_a_near_end_do_not_pile_up() -> None:
    frames = OpenFrames(most=100)
    nothing = np.array([], dtype=np.int64)
    for at in range(50):
        start = np.arange(at * 10, at * 10 + 10, dtype=np.int64)
        frames.place(np.zeros(10, np.int32), start, np.full(10, 10**9), np.ones(10, bool), nothing, nothing)
    assert [len(column) for column in frames._before] == [100, 100, 100]
    assert frames.forgotten == 400


def test_rows_without_children_move_nothing() -> None:
    start = np.array([10, 50], dtype=np.int64)
    end = np.array([60, NO_END], dtype=np.int64)
    OpenFrames().place(np.zeros(2, dtype=np.int32), start, end, np.array([False, True]), np.array([1]), np.array([0]))
    assert start.tolist() == [10, 50]


_SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 12) | st.none()), max_size=10)


@given(ranges=_SPANS, calls=_SPANS)
def test_frames_of_many_moments_begin_before_what_ended_within_them(
    ranges: list[tuple[int, int | None]], calls: list[tuple[int, int | None]]
) -> None:
    """Also where nothing nests, as no program would say."""
    rows = sorted(
        [(start, NO_END if took is None else start + took, False) for start, took in ranges]
        + [(start, NO_END if took is None else start + took, True) for start, took in calls]
    )
    if not rows:
        return
    start, end, opened = (np.array(column) for column in zip(*rows, strict=True))
    placed, frames = start.copy(), np.flatnonzero(opened)
    thread, nests, floors = np.zeros(len(rows), np.int32), ~opened, np.full(len(frames), -100)
    OpenFrames().place(thread, placed, end, nests, frames, floors)
    for at, (began, ended, frame) in enumerate(rows):
        within = [
            other
            for other, other_end, also_frame in rows
            if frame and not also_frame and other < began < other_end and (ended == NO_END or other_end < ended)
        ]
        assert placed[at] == min(within, default=began + 1) - 1
