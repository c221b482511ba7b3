"""What leaves a reader, whichever way it is asked for."""

from __future__ import annotations

import numpy as np
import pytest
from profd.errors import BadTrace
from profd.segments.read_ahead import read_ahead
from profd.segments.reader import TraceReader

from tests.support.tables import Event, store, table_of

EVENTS = [Event(f"name {number % 3}", number, number + 5) for number in range(20)]


class Hiding(TraceReader):
    """Shows no names."""

    def _shown(self, table):
        table.columns["name"] = np.full(len(table), -1, dtype=np.int32)
        return table


@pytest.mark.parametrize(
    "ask",
    [
        lambda reader: [reader.read(["name"])],
        lambda reader: [reader.read(["name"], segments=[1, 2])],
        lambda reader: [reader.read(["name"], window=(3, 9))],
        lambda reader: reader.iterate(["name"]),
        lambda reader: reader.iterate(["name"], window=(3, 9)),
        lambda reader: [reader.rows(np.array([1, 7, 19]), ["name"])],
    ],
)
def test_nothing_goes_past_what_a_reader_hides(tmp_path, ask):
    tables = list(ask(Hiding(store(table_of(EVENTS), tmp_path / "t", rows=6))))
    assert sum(map(len, tables)) > 0
    assert all((table.column("name") == -1).all() for table in tables)


def test_columns_that_some_segments_lack_are_absent_there(tmp_path):
    events = [Event("a", number, number + 1, fields={"bytes": 7} if 6 <= number < 8 else {}) for number in range(12)]
    reader = TraceReader(store(table_of(events), tmp_path / "t", rows=3))
    absent = -(2**63)
    assert reader.has("bytes")
    assert not reader.has("flops")
    assert reader.read(["bytes"]).column("bytes").tolist() == [absent] * 6 + [7] * 2 + [absent] * 4
    assert reader.read(["bytes"], segments=[2, 3]).first_row == 6


def test_damage_found_ahead_is_told_when_it_is_reached(tmp_path):
    directory = store(table_of(EVENTS), tmp_path / "t", rows=6)
    (directory / "segment-00002.parquet").write_bytes(b"PAR1")
    tables = TraceReader(directory).iterate(["name"])
    assert [len(next(tables)), len(next(tables))] == [6, 6]
    with pytest.raises(BadTrace, match="segment-00002"):
        next(tables)


def test_reading_ahead_changes_nothing():
    assert list(read_ahead(number for number in range(5))) == [0, 1, 2, 3, 4]
    assert list(read_ahead(item for item in [None, 0, ""])) == [None, 0, ""]
    assert list(read_ahead(item for item in ())) == []


def test_one_who_reads_no_further_closes_what_is_read():
    closed = []

    def items():
        try:
            yield from range(5)
        finally:
            closed.append(True)

    held = items()  # as a traceback holds it
    ahead = read_ahead(held)
    next(ahead)
    ahead.close()
    assert closed
