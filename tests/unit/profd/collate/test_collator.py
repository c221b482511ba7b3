from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profd.collate.collator import Collator
from profd.collate.merge import Piece, segments
from profd.collate.runs import FILE_COLUMN, MemoryRun, SpilledRun
from profd.collate.spill import SpillFile
from profd.decode.batch import Batch
from profd.errors import Exhausted
from profd.events import NO_END, ArgColumn, Dictionary, EventTable, Flows

ROWS = st.lists(st.tuples(st.integers(0, 9) | st.integers(-(2**62), 2**62), st.integers(0, 3)), max_size=60)


def batch_of(rows, number, with_end):
    """Rows are (start, argument or 0); `number` marks them, `with_end` gives the batch one column more."""
    start = np.array([row[0] for row in rows], dtype=np.int64)
    columns = {"start": start, "correlation": number + np.arange(len(rows), dtype=np.int64)}
    if with_end:
        columns["end"] = start + 1
    having = np.flatnonzero([row[1] > 0 for row in rows])
    values = np.array([rows[row][1] for row in having.tolist()], dtype=np.int64)
    words = Dictionary(["a", "b", "c"])
    args = {
        ("n", "int"): ArgColumn("int", having, values),
        ("word", "str"): ArgColumn("str", having, (values - 1).astype(np.int32), words),
        ("impl_ptrs", "ints"): ArgColumn(
            "ints", np.repeat(having, 2), np.repeat(values, 2) * np.tile([1, -1], len(having))
        ),
    }
    return Batch(EventTable(columns, {}, args if len(having) else {}))


def flows_of(times, first):
    count = len(times)
    codes = np.zeros(count, dtype=np.int32)
    ids = np.arange(first, first + count, dtype=np.int32)
    flags = np.zeros(count, dtype=np.bool_)
    phase = np.full(count, ord("s"), dtype=np.uint8)
    time = np.array(times, dtype=np.int64)
    return Flows(ids, codes, codes, phase, flags, codes, time, np.full(count, -1, dtype=np.int64))


@settings(max_examples=60)
@given(ROWS, st.integers(1, 70), st.integers(1, 20), st.none() | st.integers(-5, 15))
def test_segments_are_a_stable_sort_whatever_their_size(tmp_path_factory, rows, segment_rows, batch_rows, before):
    collator = Collator(tmp_path_factory.getbasetemp(), segment_rows)
    for first in range(0, len(rows), batch_rows):
        batch = batch_of(rows[first : first + batch_rows], first, with_end=first % 2 == 0)
        batch.flows = flows_of([row[0] for row in rows[first : first + batch_rows]], first)
        batch.before = before  # a hint, and often a wrong one
        collator.add(batch)
    expected = sorted(range(len(rows)), key=lambda i: rows[i][0])
    assert collator.rows == len(rows)

    seen = []
    for table in collator.segments({}):
        assert table.first_row == len(seen)
        assert len(table) <= segment_rows
        part = table.column("correlation").tolist()
        seen += part
        assert table.columns["start"].tolist() == [rows[i][0] for i in part]
        ends = [rows[i][0] + 1 if i // batch_rows * batch_rows % 2 == 0 else NO_END for i in part]
        assert table.column("end").tolist() == ends
        having = [at for at, i in enumerate(part) if rows[i][1]]
        for key, arg in table.args.items():
            if key[1] == "ints":  # two values a row, in their order
                assert arg.rows.tolist() == [at for at in having for _ in range(2)]
                assert arg.values.tolist() == [sign * rows[part[at]][1] for at in having for sign in (1, -1)]
                continue
            assert arg.rows.tolist() == having
            words = arg.values.tolist() if arg.dictionary is None else [arg.dictionary.values[v] for v in arg.values]
            assert words == [rows[part[at]][1] if key[1] == "int" else " abc"[rows[part[at]][1]] for at in having]
        assert bool(table.args) == bool(having)
    assert seen == expected
    assert [i for flows in collator.flows() for i in flows.flows.id.tolist()] == expected


def test_a_last_table_that_expects_more_loses_nothing(tmp_path):
    """Its input may end with tables without rows."""
    collator = Collator(tmp_path, segment_rows=4)
    for first in (0, 4, 8):
        batch = batch_of([(start, 0) for start in range(first, first + 4)], first, with_end=True)
        batch.before = first + 3
        collator.add(batch)
    assert [start for table in collator.segments({}) for start in table.columns["start"].tolist()] == list(range(12))


@settings(max_examples=60)
@given(ROWS, st.integers(1, 30), st.integers(1, 20), st.data())
def test_what_is_settled_comes_early_and_once(tmp_path_factory, rows, segment_rows, batch_rows, data):
    """However far tables say that they are complete, also where they take that back."""
    collator = Collator(tmp_path_factory.getbasetemp(), segment_rows)
    tables = []
    for first in range(0, len(rows), batch_rows):
        batch = batch_of(rows[first : first + batch_rows], first, with_end=first % 2 == 0)
        later = [row[0] for row in rows[first + batch_rows :]]
        batch.settled = data.draw(st.sampled_from([None, -(2**63), min(later, default=2**63 - 1)]))
        collator.add(batch)
        tables += collator.ready({})
    tables += collator.segments({})
    expected = sorted(range(len(rows)), key=lambda i: rows[i][0])
    assert [i for table in tables for i in table.column("correlation").tolist()] == expected
    assert all(len(table) <= segment_rows for table in tables)
    assert [table.first_row for table in tables] == np.cumsum([0, *map(len, tables)])[:-1].tolist()
    for table in tables:
        part = table.column("correlation").tolist()
        having = [at for at, i in enumerate(part) if rows[i][1]]
        assert bool(table.args) == bool(having)
        for key, arg in table.args.items():
            assert arg.rows.tolist() == [at for at in having for _ in range(2 if key[1] == "ints" else 1)]
            if key[1] == "int":
                assert arg.values.tolist() == [rows[part[at]][1] for at in having]


def test_rows_in_order_are_given_back_without_a_file(tmp_path):
    collator = Collator(tmp_path / "missing", 4)
    given_back = []
    for first in range(0, 20, 3):
        batch = batch_of([(start, 0) for start in range(first, first + 3)], first, with_end=True)
        batch.settled = first + 3
        collator.add(batch)
        given_back += [table.columns["start"].tolist() for table in collator.ready({})]
    assert given_back == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15], [16, 17, 18, 19]]
    assert [table.columns["start"].tolist() for table in collator.segments({})] == [[20]]


def test_rows_that_were_written_are_given_back_among_those_that_settle(tmp_path):
    collator = Collator(tmp_path, 4)
    for first in range(0, 24, 3):  # of an input that says nothing, in two runs and more
        collator.add(batch_of([(start, 0) for start in range(first, first + 3)], first, with_end=True))
        assert list(collator.ready({})) == []
    given_back = []
    for start in range(0, 24, 2):
        batch = batch_of([(start, 0), (start + 1, 0)], 100 + start, with_end=True)
        batch.settled = start + 2
        collator.add(batch)
        given_back += [table.columns["start"].tolist() for table in collator.ready({})]
    both = [start for start in range(24) for _ in range(2)]
    assert given_back == [both[at : at + 4] for at in range(0, 44, 4)]
    assert [table.columns["start"].tolist() for table in collator.segments({})] == [both[44:]]


def test_an_input_with_flow_records_settles_nothing(tmp_path):
    batch = batch_of([(1, 0)], 0, with_end=True)
    batch.flows, batch.settled = flows_of([1], 0), 1
    with pytest.raises(ValueError, match="settles nothing"):
        Collator(tmp_path).add(batch)


def test_rows_that_start_together_stay_together(tmp_path):
    run = MemoryRun(batch_of([(start, 0) for start in (1, 2, 2, 2, 3, 4)], 0, True).events)
    cuts = [(piece.low, piece.high) for pieces in segments([run], 3) for piece in pieces]
    assert cuts == [(0, 1), (1, 4), (4, 6)]


def test_more_rows_at_once_than_a_segment_holds():
    runs = [
        MemoryRun(batch_of([(5, 0)] * 4, 0, True).events),
        MemoryRun(batch_of([(5, 0)] * 3 + [(6, 0)], 4, True).events),
    ]
    cuts = [[(piece.low, piece.high) for piece in pieces] for pieces in segments(runs, 3)]
    assert cuts == [[(0, 3), (0, 0)], [(3, 4), (0, 2)], [(4, 4), (2, 4)]]


@pytest.mark.parametrize("starts", [[-(2**63), 2**63 - 1], [2**63 - 1] * 3])
def test_extreme_times(starts):
    run = MemoryRun(EventTable({"start": np.array(starts, dtype=np.int64)}, {}))
    assert [piece.high - piece.low for pieces in segments([run], 1) for piece in pieces] == [1] * len(starts)


def test_a_spilled_run_gives_back_what_was_written(tmp_path):
    rows = 20_000
    run = SpilledRun(SpillFile(tmp_path))
    start = np.arange(rows, dtype=np.int64)
    having = np.flatnonzero(start % 7 == 0)
    run.write_column("start", start)
    run.write_column("kind", (start % 17).astype(np.uint8))
    run.write_arg(("x", "float"), having, having / 2, None)
    assert os.listdir(tmp_path) == []  # nothing to clean up, whatever happens
    for low, high in [(0, 0), (0, rows), (1, 2), (4095, 4097), (rows - 1, rows), (rows, rows)]:
        assert run.column("kind", low, high).tolist() == (start[low:high] % 17).tolist()
        at, values = run.arg(("x", "float"), low, high)
        inside = having[(having >= low) & (having < high)]
        assert at.tolist() == (inside - low).tolist()
        assert values.tolist() == (inside / 2).tolist()
    for row in (0, 511, 512, 513, rows - 1):
        assert (run.start(row), run.before(row), run.before(row + 1)) == (row, row, row + 1)
    assert (run.before(-5), run.before(rows + 5)) == (0, rows)


def test_inputs_are_told_apart_and_share_argument_dictionaries(tmp_path):
    collator = Collator(tmp_path)
    other = Dictionary(["x", "b"])
    second, third = batch_of([(0, 2)], 1, True), batch_of([(2, 3)], 2, True)
    second.events.args["word", "str"].dictionary = other
    collator.add(batch_of([(1, 1)], 0, True), 0)
    collator.add(second, 1)
    other.code("new")  # dictionaries grow while their input is read
    third.events.args["word", "str"].dictionary = other
    collator.add(third, 1)
    (table,) = collator.segments({})
    assert table.columns[FILE_COLUMN].tolist() == [1, 0, 1]
    arg = table.args["word", "str"]
    assert arg.dictionary is not None
    assert [arg.dictionary.values[code] for code in arg.values] == ["b", "a", "new"]


def test_a_directory_that_takes_no_files(tmp_path):
    with pytest.raises(Exhausted, match=r"needs space in .*missing"):
        SpillFile(tmp_path / "missing")


def test_a_full_disk(tmp_path):
    file = SpillFile(tmp_path)
    limited = os.open("/dev/full", os.O_RDWR)
    try:
        os.dup2(limited, file._fd)
        with pytest.raises(Exhausted, match="No space left on device"):
            file.append(np.zeros(10, dtype=np.uint8))
    finally:
        os.close(limited)


def test_pieces_without_rows_need_no_columns():
    empty = MemoryRun(EventTable({"start": np.empty(0, dtype=np.int64)}, {}))
    assert list(segments([empty], 5)) == []
    assert Piece(empty, 0, 0).high == 0
