"""The question `tiles` against a drawing of every event, one by one; what was kept against what was not."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from profd.errors import BadInput, Exhausted
from profd.events import DeviceType, Kind, Tracks
from profd.query.tiles import kept, lanes, pyramid, timeline
from profd.query.tiles.answer import tiles
from profd.questions.answer import answer
from profd.questions.table import QUESTIONS
from profd.segments.reader import TraceReader
from profd.segments.rollups import Rollups, rules_of

from tests.support.tables import Event, store, table_of

BEGIN = 1_700_000_000_000_000_000  # a double has steps of 256 ns here
THREADS = [{"id": number, "process": number % 2, "name": f"t{number}"} for number in range(3)]
TRACKS = Tracks([{"id": 1, "name": "one", "sort_index": 5}, {"id": "x"}], THREADS)
MARKS = (Kind.INSTANT, Kind.MEMORY, Kind.COUNTER)
RANGES = (Kind.GPU_USER_ANNOTATION, Kind.OVERHEAD, Kind.TRACE)
NAMES = ("aten::mm", "", "<b>", "nul \x00 esc \x1b[31m \u202e", "x" * 5000, "half \ud800", "\x1a0041")


def some_events(seed: int, count: int = 300) -> list[Event]:
    """Crowds and single ones, long and short, on few threads and depths."""
    rng = random.Random(seed)
    events, at = [], 0
    for number in range(count):
        at += rng.choice((0, 1, 1, 3, 3, 17, rng.randrange(2000))) if number else 0
        lasts = rng.choice((0, 1, 2, 5, 40, rng.randrange(1, 30_000)))
        kind = rng.choice((Kind.CPU_OP, Kind.CPU_OP, Kind.CPU_OP, Kind.KERNEL, *RANGES, *MARKS))
        fields = {"depth": rng.randrange(3), "is_async": int(rng.random() < 0.05)}
        end = None if rng.random() < 0.02 else BEGIN + at + lasts
        device = DeviceType.CUDA if kind in (Kind.KERNEL, Kind.GPU_USER_ANNOTATION) else DeviceType.CPU
        name = NAMES[number % len(NAMES)] if rng.random() < 0.3 else f"f{number % 7}"
        events.append(Event(name, BEGIN + at, end, kind, rng.randrange(-1, 3), device, fields))
    return events


def stored(events: list[Event], folder: Path, rows: int = 1 << 19) -> TraceReader:
    return TraceReader(store(table_of(events), folder / "t", rows=rows, tracks=TRACKS))


def strip_of(event: Event) -> int:
    if event.kind in MARKS:
        return 3
    if event.kind in RANGES or event.fields.get("is_async"):
        return 0
    return 1 if event.device_type is DeviceType.CPU else 2


Drawing = tuple[set[tuple[Any, ...]], dict[tuple[Any, ...], tuple[int, int, int]]]


def drawing(events: list[Event], last: int, window: tuple[int, int], pixel: int) -> Drawing:
    """(boxes, cells) as docs/json.md says them, event by event; threads and strips in the place of tracks."""
    low, high = window
    until: dict[tuple[int, ...], int] = {}
    boxes: set[tuple[Any, ...]] = set()
    cells: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
    for row, event in enumerate(sorted(events, key=lambda one: one.start)):
        strip = strip_of(event)
        lane = (event.thread, strip, event.fields.get("depth", 0) if strip == 1 else 0)
        lasts = (0 if strip == 3 else last - event.start) if event.end is None else event.end - event.start
        gap = event.start - until[lane] if lane in until else float("inf")
        until[lane] = max(until.get(lane, event.start + lasts), event.start + lasts)
        if lasts >= pixel or gap >= pixel:
            if event.start < high and (event.start + lasts > low or event.start >= low):
                boxes.add((*lane, event.start - low, lasts, event.name[:200], int(event.kind), row))
            continue
        bucket = BEGIN + (event.start - BEGIN) // pixel * pixel
        if bucket < high and bucket + pixel > low:
            cells[(*lane, bucket - low)].append((lasts, 1 << event.kind))
    summed = {key: (len(some), sum(one[0] for one in some), _bits(some)) for key, some in cells.items()}
    return boxes, summed


def _bits(some: list[tuple[int, int]]) -> int:
    found = 0
    for _, bit in some:
        found |= bit
    return found


def asked(trace: TraceReader, **given: Any) -> Any:
    defaults: dict[str, Any] = {"from_ns": None, "to_ns": None, "width": 100, "first_track": 0, "last_track": None}
    defaults |= {"limit": 50_000, "with_tracks": True, "sketch": False}
    return json.loads(b"".join(tiles(trace, **{**defaults, **given})))


def told(answer: Any) -> Drawing:
    """The same of an answer."""
    tracks, names = answer["tracks"], answer["names"]

    def place(track: int, lane: int) -> tuple[int, int, int]:
        name = tracks["thread"][track]
        thread = int(name.split()[0][1:]) if name else -1
        return thread, lanes.STRIPS.index(tracks["strip"][track]), lane

    columns = ("track", "lane", "start", "lasts", "name", "kind", "row")
    rows = zip(*(answer["boxes"][name] for name in columns), strict=True)
    boxes = {
        (*place(track, lane), start, lasts, names[name][:200], kind, row)
        for track, lane, start, lasts, name, kind, row in rows
    }
    assert len(boxes) == len(answer["boxes"]["row"])
    counted = ("track", "lane", "start", "count", "busy", "kinds")
    cells: dict[tuple[Any, ...], tuple[int, int, int]] = {
        (*place(track, lane), start): (count, busy, kinds)
        for track, lane, start, count, busy, kinds in zip(*(answer["cells"][name] for name in counted), strict=True)
    }
    assert len(cells) == len(answer["cells"]["count"])
    return boxes, cells


def some_windows(seed: int, span: int, count: int) -> list[tuple[int, int, int]]:
    rng = random.Random(seed)
    found = [(0, span, 1000), (-5, 1, 3), (span - 1, span + 10**6, 50), (-(10**18), 10**18, 16384), (17, 18, 1)]
    while len(found) < count:
        wide = max(1, int(span * 2 ** -rng.uniform(-1, 16)))
        low = rng.randrange(-wide, span)
        found.append((low, low + wide, rng.choice((1, 7, 100, 1024))))
    return found


def whole(trace: TraceReader, folder: Path) -> Callable[[], TraceReader]:
    return lambda: trace


def tall(trace: TraceReader, folder: Path) -> Callable[[], TraceReader]:
    """Asked for the first time each time."""
    return lambda: TraceReader(trace.directory)


def kept_one(trace: TraceReader, folder: Path) -> Callable[[], TraceReader]:
    """Asked for the second time each time."""
    fresh = folder / "fresh"
    fresh.mkdir()
    asked(TraceReader(trace.directory, Rollups(None, fresh, 0, rules_of("tiles", 1))))
    place = folder / "kept"
    place.mkdir()
    for file in fresh.iterdir():
        file.rename(place / file.name.removeprefix("0."))
    assert {file.name for file in place.iterdir()} - {kept.NAMED} == set(kept.NAMES)
    return lambda: TraceReader(trace.directory, Rollups(place, None, 0, rules_of("tiles", 1)))


def small_pyramids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "WHOLE_ROWS", 0)
    monkeypatch.setattr(pyramid, "TILES_LEAST", 1)
    monkeypatch.setattr(pyramid, "TILE_SHARE", 4)
    monkeypatch.setattr(kept, "_GROUP_ROWS", 16)


WAYS = {whole: 200, tall: 60, kept_one: 200}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("seed", [1, 2])
def test_tiles_are_what_a_drawing_of_every_event_is(
    way: Any, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way is not whole:
        small_pyramids(monkeypatch)
    events = some_events(seed)
    trace = stored(events, tmp_path, rows=101)
    opened, last = way(trace, tmp_path), trace.meta.end_ns or 0
    if way is kept_one:
        monkeypatch.setattr(timeline, "built", None)  # nothing is worked out again
    levels = set()
    for low, high, width in some_windows(seed, last - BEGIN, WAYS[way]):
        answer = asked(opened(), from_ns=low, to_ns=high, width=width)
        levels.add(answer["pixel_ns"])
        window = (BEGIN + low, BEGIN + high)
        assert told(answer) == drawing(events, last, window, answer["pixel_ns"]), (low, high, width)
        assert answer["left_out"] == 0
    assert len(levels) > 10


@pytest.mark.parametrize("rows", [101, 10_000])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_level_that_the_first_events_come_to_changes_nothing(
    seed: int, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pyramids(monkeypatch)
    trace = stored(some_events(seed), tmp_path, rows=rows)
    found = pyramid.built(trace)
    assert pyramid._first(lanes.Scan(0, 0).weights(trace.read(lanes.COLUMNS)), 62) > 0
    monkeypatch.setattr(pyramid, "_first", lambda weight, top: 0)
    want = pyramid.built(trace)
    assert found.base == want.base
    assert columns_of(found.boxes) == columns_of(want.boxes)
    assert {level: columns_of(cells) for level, cells in found.cells.items()} == {
        level: columns_of(cells) for level, cells in want.cells.items()
    }


def columns_of(shapes: Any) -> dict[str, list[int]]:
    """As lists."""
    return {name: getattr(shapes, name).tolist() for name in shapes.__dataclass_fields__}


def test_a_job_that_asks_for_a_place_builds_nothing_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pyramids(monkeypatch)
    directory = str(stored(some_events(5), tmp_path).directory)
    path = tmp_path / "answer"

    def ask(**given: Any) -> dict[str, Any]:
        with path.open("wb") as out:
            return answer(
                QUESTIONS["tiles"],
                {"trace_dir": directory, "with_tracks": True, **given},
                [out.fileno()],
                lambda *_: None,
            )

    assert ask(asks=True) == {"needs_staging": True}
    assert path.read_bytes() == b""
    staging, index = tmp_path / "staging", tmp_path / "index"
    staging.mkdir()
    assert ask(staging=str(staging)) == {}
    index.mkdir()
    for file in staging.iterdir():
        file.rename(index / file.name.removeprefix("0."))
    first = told(json.loads(path.read_bytes()))
    assert ask(asks=True, trace_index=str(index)) == {}
    assert told(json.loads(path.read_bytes())) == first


@pytest.fixture
def trace(tmp_path: Path) -> TraceReader:
    return stored(some_events(3), tmp_path)


def test_tracks_are_in_order_of_process_and_thread_and_say_what_is_on_them(trace: TraceReader) -> None:
    answer = asked(trace)
    tracks = answer["tracks"]
    assert list(dict.fromkeys(zip(tracks["process"], tracks["thread"], strict=True))) == [
        ("", ""), ("x", "t1 1"), ("one 1", "t0 0"), ("one 1", "t2 2"),
    ]  # fmt: skip
    assert tracks["strip"][:4] == list(lanes.STRIPS)
    assert sum(tracks["events"]) == len(trace)
    assert [tracks["lanes"][place] for place, strip in enumerate(tracks["strip"]) if strip != "calls"] == [1] * 12
    assert tracks["left_out"] == 0
    assert list(dict.fromkeys(tracks["thread_id"])) == ["", "1", "0", "2"]
    assert "tracks" not in asked(trace, with_tracks=False)


def test_some_tracks_alone(trace: TraceReader) -> None:
    boxes, cells = told(asked(trace))
    low, high = told(asked(trace, last_track=5)), told(asked(trace, first_track=6))
    assert (low[0] | high[0], {**low[1], **high[1]}) == (boxes, cells)
    assert low[0]
    assert high[0]
    assert told(asked(trace, first_track=99)) == (set(), {})


def test_a_limit_makes_pixels_larger_and_loses_no_event(trace: TraceReader) -> None:
    fine, coarse = asked(trace, width=10_000), asked(trace, width=10_000, limit=100)
    assert fine["pixel_ns"] < coarse["pixel_ns"]
    shown = [len(one["boxes"]["row"]) + sum(one["cells"]["count"]) for one in (fine, coarse)]
    assert shown == [len(trace)] * 2
    few = asked(trace, limit=5)
    assert len(few["boxes"]["row"]) + len(few["cells"]["count"]) == 5
    a_pixel = told(asked(trace, from_ns=-(10**18), to_ns=10**18, width=1))
    assert few["left_out"] == sum(map(len, a_pixel)) - 5


@pytest.mark.parametrize(("low", "high"), [(5, 5), (5, 4), (0, 0), (-5, -5), (None, 0), (10**15, None)])
def test_a_window_without_a_length_is_refused(trace: TraceReader, low: int | None, high: int | None) -> None:
    with pytest.raises(BadInput, match="is empty; its end must be after its start"):
        asked(trace, from_ns=low, to_ns=high)


@pytest.mark.parametrize("low", [-(2**63), -(10**18), 10**15, 2**63 - 2])
def test_a_window_beyond_the_trace_shows_nothing(trace: TraceReader, low: int) -> None:
    assert told(asked(trace, from_ns=low, to_ns=low + 1)) == (set(), {})


def test_a_window_of_all_that_64_bits_have_shows_all(trace: TraceReader) -> None:
    answer = asked(trace, from_ns=-(2**63), to_ns=2**63 - 1)
    assert len(answer["boxes"]["row"]) + sum(answer["cells"]["count"]) == len(trace)


def test_a_trace_without_events(tmp_path: Path) -> None:
    empty = stored([], tmp_path)
    answer = asked(empty)
    assert (told(answer), answer["start_ns"]) == ((set(), {}), None)


def test_a_window_of_which_there_is_too_much_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = stored(some_events(5), tmp_path)
    answers = {given: asked(trace, **dict(given)) for given in crowded_windows(trace)}
    small_pyramids(monkeypatch)
    opened = kept_one(trace, tmp_path)
    base = kept.found(opened()).base  # type: ignore[union-attr]
    read: list[int] = []
    before = timeline.Tall._read
    monkeypatch.setattr(timeline.Tall, "_read", lambda self, *of: read.append(of[1]) or before(self, *of))
    folded = 0
    for given, expected in answers.items():
        read.clear()
        answer = asked(opened(), **dict(given))
        assert told(answer) == told(expected)
        assert len(read) <= 1
        level = answer["pixel_ns"].bit_length() - 1
        folded += bool(read) and read[0] < level <= base
    assert folded > 5


@pytest.mark.parametrize("way", [tall, kept_one], ids=lambda way: way.__name__)
def test_no_event_is_read_where_the_base_has_too_much_already(
    way: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = stored(some_events(5), tmp_path)
    span = (trace.meta.end_ns or 0) - BEGIN
    few: dict[str, Any] = {"from_ns": span // 4, "to_ns": 3 * span // 4, "width": 10_000, "limit": 1}
    expected = asked(trace, **few)
    on_two = asked(trace, **few, last_track=8)
    small_pyramids(monkeypatch)
    opened = way(trace, tmp_path)
    enough = {**few, "limit": 50_000}
    fine = told(asked(opened(), **enough))
    with monkeypatch.context() as patched:
        patched.setattr(timeline.Tall, "_read", None)
        assert told(asked(opened(), **few)) == told(expected)
        assert told(asked(opened(), **few, last_track=8)) == told(on_two)
    assert told(asked(opened(), **enough)) == fine


def crowded_windows(trace: TraceReader) -> list[tuple[tuple[str, int], ...]]:
    span = (trace.meta.end_ns or 0) - (trace.meta.start_ns or 0)
    windows = [(low, high, width) for low, high, width in some_windows(3, span, 120) if high - low > width]
    return [
        (("from_ns", low), ("to_ns", high), ("width", width), ("limit", 8 + 11 * (number % 5)))
        for number, (low, high, width) in enumerate(windows)
    ]


def test_many_tracks_and_deep_calls_are_bounded(tmp_path: Path) -> None:
    deep = [Event("f", BEGIN, BEGIN + 10**6 - level, fields={"depth": level}) for level in range(10_000)]
    threads = [{"id": number, "process": 0} for number in range(100_000)]
    wide = [Event("g", BEGIN + number, BEGIN + number + 1, thread=number) for number in range(1, 100_000)]
    reader = TraceReader(store(table_of([*deep, *wide]), tmp_path / "t", tracks=Tracks([{"id": 1}], threads)))
    answer = asked(reader, limit=1000)
    assert (len(answer["boxes"]["row"]), answer["left_out"]) == (1000, 10_000 + 99_999 - 1000)
    assert answer["boxes"]["lane"] == list(range(1000))
    assert answer["tracks"]["lanes"][:2] == [10_000, 1]
    assert len(answer["tracks"]["thread"]) == 100_000


def test_more_lanes_than_there_may_be_are_refused(trace: TraceReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "TILE_LANES_MAX", 3)
    with pytest.raises(Exhausted, match="cannot be drawn: the timeline has too many lanes"):
        asked(trace)


@pytest.mark.parametrize("name", kept.NAMES)
@pytest.mark.parametrize("how", ["cut", "turned", "gone", "other"])
def test_what_was_kept_and_is_damaged_is_not_believed(
    name: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pyramids(monkeypatch)
    trace = stored(some_events(4), tmp_path)
    opened = kept_one(trace, tmp_path)
    path = tmp_path / "kept" / name
    data = bytearray(path.read_bytes())
    if how == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif how == "turned":
        for at in range(4, len(data) // 3):
            data[at] ^= 0x55
        path.write_bytes(data)
    elif how == "gone":
        path.unlink()
    else:
        (path.parent / next(one for one in kept.NAMES if one != name)).replace(path)
    assert told(asked(opened(), width=50)) == told(asked(TraceReader(trace.directory), width=50))
