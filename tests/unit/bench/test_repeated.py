"""A trace that follows itself: its rows, times, links and steps go on."""

from __future__ import annotations

from pathlib import Path

from profd.events import NO_END, Kind
from profd.segments.reader import TraceReader

from bench.repeated import BETWEEN_NS, repeat
from tests.support.tables import Event, store, table_of


def test_each_copy_goes_on_where_the_one_before_ended(tmp_path: Path) -> None:
    events = [
        Event("ProfilerStep#0", 100, 200, Kind.USER_ANNOTATION),
        Event("launch", 110, 120, Kind.RUNTIME, fields={"parent": 0, "correlation": 1}),
        Event("ProfilerStep#1", 210, 300, Kind.USER_ANNOTATION),
        Event("kernel", 220, None, Kind.KERNEL, 1, fields={"parent": 1, "linked": 1, "correlation": 1}),
    ]
    once = store(table_of(events), tmp_path / "once", rows=3)
    root = tmp_path / "state"
    table = TraceReader(root / "traces" / repeat(once, root, 3)).read()
    names = table.dictionaries["name"].values
    assert [names[code] for code in table.column("name")[::2]] == [f"ProfilerStep#{number}" for number in range(6)]
    lasting = 200 + BETWEEN_NS
    assert table.columns["start"].tolist() == [event.start + copy * lasting for copy in range(3) for event in events]
    assert table.column("end")[4:6].tolist() == [200 + lasting, 120 + lasting]
    assert table.column("end")[3::4].tolist() == [NO_END] * 3
    assert table.column("parent").tolist() == [-1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9]
    assert table.column("linked")[3::4].tolist() == [1, 5, 9]
    assert table.column("correlation")[1::4].tolist() == table.column("correlation")[3::4].tolist() == [1, 2, 3]
