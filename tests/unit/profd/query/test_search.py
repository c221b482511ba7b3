"""The question `search`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.errors import BadInput
from profd.query.search import search
from profd.segments.reader import TraceReader

from tests.support.tables import Event, store, table_of

BEGIN = 1_700_000_000_000_000_001
NAMES = st.sampled_from(["aten::mm", "MM", "gemm", "add", "ÄMM", ""])


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
    first = [(*some[0], len(some)) for _, some in sorted(found.items())]
    assert list(zip(*answer["first"].values(), strict=True)) == first
    assert list(answer["first"]) == ["row", "start", "lasts", "name", "count"]
    assert answer["events"] == sum(map(len, found.values()))


def test_nothing_is_searched_for(tmp_path: Path) -> None:
    reader = TraceReader(store(table_of([Event("a", 1, 2)]), tmp_path / "t"))
    with pytest.raises(BadInput, match="say what to search for"):
        search(reader, text="", parts=1)
