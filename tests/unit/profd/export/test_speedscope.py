"""speedscope's JSON: read back as its importer does, frames strictly nested."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.events import Kind, Tracks
from profd.export import speedscope
from profd.segments.reader import TraceReader, Window

from tests.support.tables import Event, store, table_of

TRACKS = Tracks(
    processes=[{"id": 42, "name": "python"}],
    threads=[{"id": 1, "process": 0}, {"id": 7, "process": 0, "name": "stream"}],
)


def write(path: Path, window: Window | None = None) -> tuple[int, dict[str, Any]]:
    out = io.BytesIO()
    count = speedscope.write(TraceReader(path), out, window, lambda what, share: None)
    return count, json.loads(out.getvalue())


def spans(document: dict[str, Any], number: int = 0) -> list[tuple[str, int, int]]:
    """(name, from, to) of a profile; fails unless it is one that speedscope accepts."""
    profile = document["profiles"][number]
    stack: list[tuple[int, int]] = []
    found = []
    last = profile["startValue"]
    for event in profile["events"]:
        assert last <= event["at"] <= profile["endValue"]
        last = event["at"]
        if event["type"] == "O":
            stack.append((event["frame"], event["at"]))
        else:
            frame, since = stack.pop()
            assert frame == event["frame"]
            found.append((document["shared"]["frames"][frame]["name"], since, event["at"]))
    assert stack == []
    return sorted(found)


def test_a_profile_per_thread(tmp_path: Path) -> None:
    rows = [
        Event("main", 1000, 2000, Kind.PYTHON_FUNCTION),
        Event("op", 1100, 1300),
        Event("kernel", 1500, 1900, Kind.KERNEL, thread=1),
        Event("mark", 1200, 1200, Kind.INSTANT),
    ]
    count, document = write(store(table_of(rows), tmp_path / "t", rows=2, tracks=TRACKS, title="train.py"))
    assert count == 3
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert document["name"] == "train.py"
    assert [profile["name"] for profile in document["profiles"]] == ["python 42 / 1", "python 42 / stream 7"]
    assert spans(document) == [("main", 0, 1000), ("op", 100, 300)]
    assert spans(document, 1) == [("kernel", 0, 400)]


def test_a_span_that_outlives_its_frame_ends_with_it(tmp_path: Path) -> None:
    rows = [Event("a", 0, 50), Event("b", 40, 90), Event("c", 60, 70)]
    assert spans(write(store(table_of(rows), tmp_path / "t"))[1]) == [("a", 0, 50), ("b", 40, 50), ("c", 60, 70)]


def test_a_window_cuts_spans(tmp_path: Path) -> None:
    rows = [Event("a", 0, 100), Event("b", 10, 20), Event("c", 30, 60)]
    assert spans(write(store(table_of(rows), tmp_path / "t"), (40, 80))[1]) == [("a", 0, 40), ("c", 0, 20)]


def test_an_empty_trace_is_still_a_document(tmp_path: Path) -> None:
    count, document = write(store(table_of([]), tmp_path / "t"))
    assert (count, document["profiles"]) == (0, [])


def test_names_that_are_no_json(tmp_path: Path) -> None:
    document = write(store(table_of([Event("a\ud800", 0, 5), Event("", 6, 7)]), tmp_path / "t", title="\ud800"))[1]
    assert spans(document) == [("?", 6, 7), ("a?", 0, 5)]


def test_many_events_are_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speedscope, "_EVENTS_AT_ONCE", 3)
    rows = [Event("a", n, n + 1) for n in range(20)]
    assert len(spans(write(store(table_of(rows), tmp_path / "t"))[1])) == 20


EVENTS = st.builds(
    lambda name, start, lasting, thread: Event(name, start, start + lasting, thread=thread),
    st.sampled_from("abc"),
    st.integers(0, 50),
    st.integers(0, 30),
    st.integers(0, 2),
)


@given(rows=st.lists(EVENTS, max_size=20))
def test_always_strictly_nested(rows: list[Event], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = store(table_of(rows), tmp_path_factory.mktemp("random") / "t")
    count, document = write(path)
    assert count == len(rows)
    found = [spans(document, number) for number in range(len(document["profiles"]))]
    assert sum(map(len, found)) == len(rows)
