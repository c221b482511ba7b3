"""A sketch of a timeline against the events that it is by; the index that takes its place."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from profd import limits
from profd.events import DeviceType
from profd.query.tiles import timeline
from profd.questions.answer import answer
from profd.questions.table import QUESTIONS
from profd.segments.reader import TraceReader
from profd.segments.segment import SegmentFile

from tests.support.tables import Event
from tests.unit.profd.query.tiles.test_tiles import BEGIN, asked, small_pyramids, some_events, stored, strip_of, told

ROWS = 20  # of a segment, each of one row group


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    small_pyramids(monkeypatch)
    monkeypatch.setattr(limits, "SKETCH_ROWS", 100)
    monkeypatch.setattr(limits, "SKETCH_GROUPS", 1000)


def lane_of(event: Event) -> tuple[int, ...]:
    strip = strip_of(event)
    return event.thread, strip, event.fields.get("depth", 0) if strip == 1 else 0


def begun(events: list[Event]) -> Counter[tuple[int, ...]]:
    """How many events each lane has."""
    return Counter(map(lane_of, events))


def counts(answer: dict[str, Any]) -> Counter[tuple[int, ...]]:
    """The same of an answer, in which cells are estimates."""
    boxes, cells = told(answer)
    found: Counter[tuple[int, ...]] = Counter(box[:3] for box in boxes)
    for cell, (count, _, _) in cells.items():
        found[cell[:3]] += count
    return found


def crowded(count: int) -> list[Event]:
    """A thread that is equally busy all the time, and a call around all of it."""
    on: dict[str, Any] = {"thread": 0, "device_type": DeviceType.CPU}
    around = Event("main", BEGIN, BEGIN + 100 * count, fields={"depth": 0}, **on)
    inner = [
        Event("f", BEGIN + 100 * number, BEGIN + 100 * number + 60, fields={"depth": 1 + number % 2}, **on)
        for number in range(count)
    ]
    return [around, *inner]


def test_a_sample_of_everything_counts_every_event(tmp_path: Path) -> None:
    events = crowded(2000)
    found = asked(stored(events, tmp_path, rows=ROWS), sketch=True, width=100)
    assert found["sketch"] == {"events": 2001, "of": 2001}
    assert told(found)[0] == {(0, 1, 0, 0, 200_000, "main", int(events[0].kind), 0)}
    want = begun(events)
    for lane, count in counts(found).items():
        assert abs(count - want[lane]) <= 0.1 * want[lane], lane
    assert set(counts(found)) == set(want)


@pytest.mark.parametrize("count", [2000, 20_000])
def test_however_large_a_trace_is_as_many_row_groups_are_read(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SKETCH_GROUPS", 7)
    events, read = crowded(count), []
    load = SegmentFile.load
    monkeypatch.setattr(
        SegmentFile, "load", lambda file, groups, *given: read.append(groups) or load(file, groups, *given)
    )
    found = asked(stored(events, tmp_path, rows=ROWS), sketch=True, width=50)
    assert len(read) == 7
    assert found["sketch"] == {"events": 7 * ROWS, "of": count + 1}
    want = begun(events)
    for lane, some in counts(found).items():
        assert abs(some - want[lane]) <= 0.15 * want[lane], lane


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_boxes_of_a_sketch_are_events_and_none_is_shorter_than_a_pixel(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SKETCH_GROUPS", 5)
    trace = stored(some_events(seed), tmp_path, rows=ROWS)
    span = (trace.meta.end_ns or 0) - BEGIN
    seen = 0
    for low, high, width in ((0, span, 300), (span // 3, span // 2, 100), (-(10**18), 10**18, 16384), (17, 18, 1)):
        sketch = asked(TraceReader(trace.directory), sketch=True, from_ns=low, to_ns=high, width=width)
        every = told(asked(TraceReader(trace.directory), from_ns=low, to_ns=high, width=width * 64))[0]
        boxes, cells = told(sketch)
        assert boxes <= every
        assert all(box[4] >= sketch["pixel_ns"] for box in boxes)
        assert all(count > 0 for count, _, _ in cells.values())
        seen += len(boxes)
    assert seen


def test_pixels_of_a_sketch_grow_before_its_cells_take_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fine = asked(stored(crowded(2000), tmp_path / "a", rows=ROWS), sketch=True, width=1000)
    monkeypatch.setattr("profd.limits.TILE_ROWS_MAX", 600)
    coarse = asked(stored(crowded(2000), tmp_path / "b", rows=ROWS), sketch=True, width=1000)
    assert fine["pixel_ns"] < coarse["pixel_ns"]
    assert len(coarse["cells"]["count"]) <= 600 < len(fine["cells"]["count"])


def test_what_can_be_read_at_once_is_never_a_sketch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = some_events(4)
    trace = stored(events, tmp_path, rows=ROWS)
    exact = asked(TraceReader(trace.directory))
    assert "sketch" not in exact  # it was not asked for
    monkeypatch.setattr(limits, "SKETCH_ROWS", len(events))
    assert asked(TraceReader(trace.directory), sketch=True) == exact


def ask(name: str, directory: Path, path: Path, **given: Any) -> dict[str, Any]:
    with path.open("wb") as out:
        return answer(QUESTIONS[name], {"trace_dir": str(directory), **given}, [out.fileno()], lambda *_: None)


def test_an_index_is_built_with_word_of_how_far_it_is_and_takes_the_place_of_the_sketch(tmp_path: Path) -> None:
    events = some_events(5)
    directory = stored(events, tmp_path, rows=ROWS).directory
    path, staging, index = tmp_path / "answer", tmp_path / "staging", tmp_path / "index"
    assert ask("tiles", directory, path, asks=True, sketch=True) == {}  # nothing is kept of it
    assert json.loads(path.read_bytes())["sketch"]["of"] == len(events)
    assert ask("tiles_index", directory, path, asks=True) == {"needs_staging": True}
    assert path.read_bytes() == b""
    staging.mkdir()
    ask("tiles_index", directory, path, staging=str(staging))
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    done = [line["events"] for line in lines]
    assert done == sorted(done)
    assert done[0] == ROWS
    assert [line["there"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert lines[-1] == {"events": len(events), "of": len(events), "there": True}
    index.mkdir()
    for file in staging.iterdir():
        file.rename(index / file.name.removeprefix("0."))
    assert (
        ask("tiles", directory, path, asks=True, sketch=True, trace_index=str(index), width=100, with_tracks=True) == {}
    )
    kept = json.loads(path.read_bytes())
    assert "sketch" not in kept
    assert told(kept) == told(asked(TraceReader(directory)))
    ask("tiles_index", directory, path, trace_index=str(index))
    assert len(path.read_bytes().splitlines()) == 1  # it is there


def test_of_a_small_trace_no_index_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "WHOLE_ROWS", 1 << 17)
    directory = stored(some_events(6), tmp_path, rows=ROWS).directory
    assert ask("tiles_index", directory, tmp_path / "answer", asks=True) == {"rows": 1}
