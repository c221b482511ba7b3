"""The question `search`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.errors import BadInput
from profd.query import search as module
from profd.query.search import search
from profd.query.tiles import kept, named, timeline
from profd.segments.reader import TraceReader
from profd.segments.rollups import Rollups, rules_of

from tests.support.tables import Event, store, table_of

BEGIN = 1_700_000_000_000_000_001
NAMES = st.sampled_from(["aten::mm", "MM", "gemm", "add", "ÄMM", "mm \ud800", ""])


@given(st.lists(st.tuples(NAMES, st.integers(0, 99), st.none() | st.integers(0, 9)), max_size=30), st.integers(1, 30))
def test_property_as_each_event_tells(
    tmp_path_factory: pytest.TempPathFactory, given: list[tuple[str, int, int | None]], parts: int
) -> None:
    table = table_of(
        Event(n, BEGIN + start, None if lasts is None else BEGIN + start + lasts) for n, start, lasts in given
    )
    reader = TraceReader(store(table, tmp_path_factory.mktemp("t") / "t", rows=4))
    events = sorted(given, key=lambda event: event[1])
    begin = events[0][1] if events else 0
    end = max((start + (lasts or 0) for _, start, lasts in events), default=0)
    long = -(-(end - begin + 1) // parts)
    found: dict[int, list[tuple[int, int, int | None, str]]] = {}
    for row, (name, start, lasts) in enumerate(events):
        if "mm" in name.lower():
            found.setdefault((start - begin) // long, []).append((row, start - begin, lasts, name))
    answer = search(reader, text="mM", parts=parts)
    assert answer == by_index(reader, "mM", parts)
    first = [(*some[0], len(some)) for _, some in sorted(found.items())]
    assert list(zip(*answer["first"].values(), strict=True)) == first
    assert list(answer["first"]) == ["row", "start", "lasts", "name", "count"]
    assert answer["events"] == sum(map(len, found.values()))


def indexed(reader: TraceReader) -> TraceReader:
    """The trace with the timeline's index beside it."""
    folder = reader.directory.parent / "index"
    folder.mkdir(exist_ok=True)
    rules = rules_of("tiles", 1)
    list(timeline.index_lines(TraceReader(reader.directory, Rollups(None, folder, 0, rules))))
    for file in folder.glob("0.*"):
        file.rename(folder / file.name.removeprefix("0."))
    return TraceReader(reader.directory, Rollups(folder, None, 0, rules))


def by_index(reader: TraceReader, text: str, parts: int) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "WHOLE_ROWS", 0)
        patch.setattr(named, "SEARCH_SHARE", 1)
        for one in (module, named, kept):
            patch.setattr(one, "PARTS", parts)
        found = indexed(reader)
        assert (kept.named(found) is not None) == (len(reader) > 0)
        return search(found, text=text, parts=parts)


def many(count: int) -> list[Event]:
    return [Event(f"name {number % 3}", BEGIN + number, BEGIN + number + 1) for number in range(count)]


@pytest.mark.parametrize(("limit", "value"), [("SEARCH_SHARE", 64), ("SEARCH_NAMES_BYTES_MAX", 17)])
def test_names_that_take_too_much_room_are_not_kept(
    limit: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "WHOLE_ROWS", 0)
    monkeypatch.setattr(named, "SEARCH_SHARE", 1)
    monkeypatch.setattr(named, limit, value)
    reader = indexed(TraceReader(store(table_of(many(60)), tmp_path / "t")))
    assert kept.found(reader) is not None
    assert kept.named(reader) is None
    assert search(reader, text="name 1", parts=named.PARTS)["events"] == 20


@pytest.mark.parametrize("damage", ["cut", "part", "row"])
def test_an_index_that_is_damaged_is_not_believed(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "WHOLE_ROWS", 0)
    monkeypatch.setattr(named, "SEARCH_SHARE", 1)
    reader = TraceReader(store(table_of(many(60)), tmp_path / "t"))
    found = indexed(reader)
    assert kept.named(found) is not None
    path = tmp_path / "index" / kept.NAMED
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:100])
    elif damage == "part":
        monkeypatch.setattr(kept, "PARTS", 30)
    else:
        monkeypatch.setattr(TraceReader, "__len__", lambda self: 10)
    assert kept.named(found) is None


def test_nothing_is_searched_for(tmp_path: Path) -> None:
    reader = TraceReader(store(table_of([Event("a", 1, 2)]), tmp_path / "t"))
    with pytest.raises(BadInput, match="say what to search for"):
        search(reader, text="", parts=1)
