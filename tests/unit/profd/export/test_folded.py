"""Folded stacks."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from profd.events import Kind, Tracks
from profd.export import folded, stacks
from profd.segments.reader import TraceReader, Window

from tests.support.tables import Event, store, table_of

TRACKS = Tracks(
    processes=[{"id": 42, "name": "python"}, {"id": 0}],
    threads=[{"id": 1, "process": 0, "name": "main"}, {"id": 7, "process": 1}],
)


def write(path: Path, window: Window | None = None) -> tuple[int, list[str]]:
    out = io.BytesIO()
    count = folded.write(TraceReader(path), out, window, lambda what, share: None)
    return count, sorted(out.getvalue().decode().splitlines())


def events() -> list[Event]:
    return [
        Event("main", 0, 1000, Kind.PYTHON_FUNCTION),
        Event("op;x", 100, 300),
        Event("launch", 150, 200, Kind.RUNTIME),
        Event("op;x", 400, 500),
        Event("kernel", 600, 900, Kind.KERNEL, thread=1, fields={"linked": 2}),
        Event("lonely", 900, 950, Kind.KERNEL, thread=1),
        Event("mark", 50, 50, Kind.INSTANT),
        Event("Trace", 0, 5000, Kind.TRACE),
    ]


def test_self_times_by_stack_and_device_work_apart(tmp_path: Path) -> None:
    # Rows: 0 main, 1 Trace, 2 mark, 3 op, 4 launch, 5 op, 6 kernel, 7 lonely
    rows = events()
    rows[4].fields["linked"] = 4
    count, lines = write(store(table_of(rows), tmp_path / "t", rows=3, tracks=TRACKS))
    assert count == 6
    assert lines == [
        "0 / 7;lonely 50",
        "0 / 7;main;op:x;launch;kernel 300",
        "python 42 / main 1;main 700",
        "python 42 / main 1;main;op:x 250",
        "python 42 / main 1;main;op:x;launch 50",
    ]


def test_a_window_cuts_times(tmp_path: Path) -> None:
    path = store(table_of(events()[:4]), tmp_path / "t", tracks=TRACKS)
    assert write(path, (200, 450))[1] == [
        "python 42 / main 1;main 100",
        "python 42 / main 1;main;op:x 150",
    ]


def test_endless_recursion_is_charged_to_the_deepest_frame_shown(tmp_path: Path) -> None:
    depth = stacks.FRAMES_MAX + 500
    path = store(table_of([Event("f", n, 2 * depth - n) for n in range(depth)]), tmp_path / "t")
    count, lines = write(path)
    assert count == depth
    assert max(line.count(";") for line in lines) == stacks.FRAMES_MAX
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == 2 * depth


def test_no_events_no_lines(tmp_path: Path) -> None:
    assert write(store(table_of([]), tmp_path / "t")) == (0, [])


def test_names_are_one_frame_each(tmp_path: Path) -> None:
    path = store(table_of([Event("a\nb;c\ud800", 0, 5), Event("", 6, 8)]), tmp_path / "t")
    assert write(path)[1] == ["thread 0;? 2", "thread 0;a b:c? 5"]


EVENTS = st.builds(
    lambda name, start, lasting: Event(name, start, start + lasting),
    st.sampled_from("abc"),
    st.integers(0, 50),
    st.integers(0, 20),
)


@given(rows=st.lists(EVENTS, max_size=6))
def test_times_add_up_where_nothing_overlaps_partially(
    rows: list[Event], tmp_path_factory: pytest.TempPathFactory
) -> None:
    assume(not any(a.start < b.start < _end(a) < _end(b) for a in rows for b in rows))
    _, lines = write(store(table_of(rows), tmp_path_factory.mktemp("random") / "t"))
    busy = {time for row in rows for time in range(row.start, _end(row))}
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == len(busy)


def _end(event: Event) -> int:
    return event.start if event.end is None else event.end
