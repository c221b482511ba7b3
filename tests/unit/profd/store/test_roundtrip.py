"""What is written is what is read."""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profd.events import COLUMNS, NO_END, ArgColumn, Dictionary, EventTable, Flows
from profd.segments.meta import TraceMeta, segment_file
from profd.segments.reader import TraceReader
from profd.segments.writer import TraceWriter

from tests.unit.profd.store.tables import plain, random_table

DATA = Path(__file__).resolve().parents[3] / "data"
EXAMPLES = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True, scope="module")
def small_groups():
    """Row groups of a few rows, as a long trace has them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("profd.segments.parquet.GROUP_ROWS", 7)
        yield


def write(directory: Path, seed: int, sizes: list[int]) -> tuple[list[EventTable], TraceMeta]:
    directory.mkdir()
    writer = TraceWriter(directory)
    tables, after = [], 0
    for number, rows in enumerate(sizes):
        table = random_table(seed + number, rows, writer.rows, after)
        writer.write_segment(table)
        if rows:
            after = int(table.columns["start"][-1])
            tables.append(table)
    return tables, writer.finish(TraceMeta())


@EXAMPLES
@given(seed=st.integers(0, 2**32), sizes=st.lists(st.integers(0, 60), max_size=4))
def test_read_returns_what_was_written(tmp_path_factory, seed, sizes):
    directory = tmp_path_factory.mktemp("trace") / "t"
    tables, meta = write(directory, seed, sizes)
    reader = TraceReader(directory)
    expected = [row for table in tables for row in plain(table)]
    assert plain(reader.read()) == expected
    assert [plain(table) for table in reader.iterate()] == [plain(table) for table in tables]
    assert meta.events == len(expected)
    assert reader.meta == meta


@EXAMPLES
@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.integers(0, 60), max_size=4),
    low=st.integers(-10, 3000),
    length=st.integers(0, 2000),
)
def test_window_equals_a_filter_of_everything(tmp_path_factory, seed, sizes, low, length):
    directory = tmp_path_factory.mktemp("trace") / "t"
    tables, _ = write(directory, seed, sizes)
    high = low + length
    rows = [row for table in tables for row in plain(table)]
    expected = [
        {**row, "row": number}
        for number, row in enumerate(rows)
        if row["start"] < high and ("end" not in row or row["end"] > low or row["start"] >= low)
    ]
    assert plain(TraceReader(directory).read(window=(low, high))) == expected


@pytest.mark.parametrize(
    "keys", [[("k", "int"), ("k", "str")], [("a\ud800", "int"), ("a\udc00", "int")], [("\0", "json")]]
)
def test_keys_of_arguments_are_kept_apart(tmp_path, keys):
    args = {}
    for number, key in enumerate(keys):
        coded = key[1] != "int"
        values = np.array([0], np.int32) if coded else np.array([number])
        args[key] = ArgColumn(key[1], np.array([0]), values, Dictionary(["x"]) if coded else None)
    table = EventTable({"start": np.array([1])}, {}, args)
    writer = TraceWriter(tmp_path)
    writer.write_segment(table)
    assert writer.finish(TraceMeta()).args == keys
    assert plain(TraceReader(tmp_path).read()) == plain(table)
    assert set(TraceReader(tmp_path).read(args=[keys[0][0]]).args) == {key for key in keys if key[0] == keys[0][0]}


@EXAMPLES
@given(seed=st.integers(0, 2**32), picks=st.sets(st.integers(0, 99)))
def test_rows_returns_the_rows_asked_for(tmp_path_factory, seed, picks):
    directory = tmp_path_factory.mktemp("trace") / "t"
    tables, _ = write(directory, seed, [40, 60])
    everything = [row for table in tables for row in plain(table)]
    wanted = sorted(picks)
    read = TraceReader(directory).rows(np.array(wanted, dtype=np.int64))
    assert plain(read) == [{**everything[row], "row": row} for row in wanted]


def test_columns_and_args_can_be_chosen(tmp_path):
    tables, _ = write(tmp_path / "t", 7, [50, 50])
    reader = TraceReader(tmp_path / "t")
    read = reader.read(["kind", "value"], args=False)
    assert set(read.columns) <= {"start", "kind", "value"}
    assert not read.args
    read = reader.read([], args=["a"])
    assert set(read.columns) == {"start"}
    assert {key for key, _ in read.args} <= {"a"}
    have = {("a", "int")} & {key for table in tables for key, arg in table.args.items() if len(arg.rows)}
    assert set(read.args) == have


def test_another_engine_reads_the_same(tmp_path):
    tables, meta = write(tmp_path / "t", 11, [60, 60])
    for table, info in zip(tables, meta.segments, strict=True):
        path = tmp_path / "t" / info.file
        names = [name for name in pq.read_schema(path).names if name in COLUMNS]
        words = ", ".join(f'"{name}"' for name in names)
        read = duckdb.connect().execute(f"SELECT {words}, start + dur FROM '{path}'").fetchall()
        expected = [{name: row[name] for name in (*names, "end") if name in row} for row in plain(table)]
        # What a column cannot lack is 0 where the table has no such column.
        filled = dict.fromkeys({"kind", "device_type", "depth"} - table.columns.keys(), 0)
        assert [
            {name: value for name, value in zip((*names, "end"), row, strict=True) if value is not None} for row in read
        ] == [{**filled, **{name: _as_stored(value) for name, value in row.items()}} for row in expected]


def _as_stored(value):
    """A lone surrogate is escaped."""
    return value.replace("\ud800", "\x1ad800") if isinstance(value, str) else value


def test_a_trace_of_before_is_read():
    """Of format 1: bytes split, binary columns, a column for each argument, `late.parquet` with ends in it.

    Written by the build of 83d2bc3, with `random_table`.
    """
    folder = DATA / "store-v1"
    expected = json.loads((folder / "rows.json").read_text())
    reader = TraceReader(folder / "trace")
    assert plain(reader.read()) == expected
    assert reader.has("self_time")
    window = plain(reader.read(window=(8000, 10_000)))  # of the rows that have an end, those of `late.parquet`
    assert [row for row in window if "end" in row] == [{"row": row, **expected[row]} for row in (1, 3)]
    assert plain(reader.rows(np.array([1, 45]))) == [{**expected[row], "row": row} for row in (1, 45)]
    flows = reader.flows()
    assert (flows.thread.tolist(), flows.row.tolist(), bytes(flows.phase)) == ([0, 1, -1], [-1, 4, 5], b"stf")
    assert [reader.dictionaries["flow_id"].values[code] for code in flows.id] == ["7", "x\ud800", "7"]


def minimal(start: list[int], first_row: int = 0) -> EventTable:
    return EventTable({"start": np.array(start, dtype=np.int64)}, {}, {}, first_row)


def test_late_patches_win_over_what_the_segment_says(tmp_path):
    writer = TraceWriter(tmp_path)
    writer.write_segment(minimal([1, 2, 3]))
    writer.write_segment(minimal([4, 5], 3))
    writer.write_late(np.array([1, 4]), {"self_time": np.array([10, 40]), "parent": np.array([0, 3])})
    writer.write_late(np.array([4]), {"self_time": np.array([41])})
    writer.write_late(np.array([1]), {"parent": np.array([-1])})
    writer.finish(TraceMeta())
    read = TraceReader(tmp_path).read()
    assert read.columns["self_time"].tolist() == [NO_END, 10, NO_END, NO_END, 41]
    assert read.columns["parent"].tolist() == [-1, -1, -1, -1, 3]
    assert "parent" not in TraceReader(tmp_path).read(["self_time"]).columns


@EXAMPLES
@given(seed=st.integers(0, 2**32), rows=st.sets(st.integers(0, 59), min_size=1))
def test_late_cells_are_in_the_segments(tmp_path_factory, seed, rows):
    """And all else is as it was."""
    directory = tmp_path_factory.mktemp("trace")
    writer = TraceWriter(directory)
    tables = [random_table(seed, 40, 0)]
    tables.append(random_table(seed + 1, 20, 40, int(tables[0].columns["start"][-1])))
    for table in tables:
        writer.write_segment(table)
    late = sorted(rows)
    writer.write_late(np.array(late), {"self_time": np.array(late) - 5, "depth": np.array(late) + 7})
    writer.finish(TraceMeta())
    files = [directory / segment_file(number) for number in range(2)]
    assert sorted(directory.iterdir()) == [directory / "meta.json", *files]
    expected = [row for table in tables for row in plain(table)]
    for row in late:
        expected[row] |= {"self_time": row - 5, "depth": row + 7}
    assert plain(TraceReader(directory).read()) == expected
    said = [
        row for path in files for row in duckdb.connect().execute(f"select self_time, depth from '{path}'").fetchall()
    ]
    assert [said[row] for row in late] == [(row - 5, row + 7) for row in late]


def test_rows_out_of_order_are_a_fault(tmp_path):
    writer = TraceWriter(tmp_path)
    with pytest.raises(ValueError, match="start order"):
        writer.write_segment(minimal([2, 1]))
    writer.write_segment(minimal([5, 6]))
    with pytest.raises(ValueError, match="start order"):
        writer.write_segment(minimal([4], 2))
    with pytest.raises(ValueError, match="expected 2"):
        writer.write_segment(minimal([9], 3))
    for column in ("name", "start", "end"):
        with pytest.raises(ValueError, match="cannot be patched"):
            writer.write_late(np.array([0]), {column: np.array([1])})


def test_flows_come_back_in_order(tmp_path):
    words = {"flow_id": Dictionary(["7", "x\ud800"]), "cat": Dictionary(["ac2g"]), "name": Dictionary(["ac2g", "fwd"])}

    def flows(first: int) -> Flows:
        return Flows(
            id=np.array([0, 1, 0], np.int32),
            category=np.array([0, 0, -1], np.int32),
            name=np.array([1, -1, 0], np.int32),
            phase=np.frombuffer(b"stf", np.uint8),
            enclosing=np.array([False, False, True]),
            thread=np.array([0, 1, 2], np.int32),
            time=np.array([first, first + 1, first + 2]),
            row=np.array([-1, 4, 5]),
        )

    writer = TraceWriter(tmp_path)
    writer.write_flows(flows(10), words)
    writer.write_flows(flows(20), words)
    assert writer.finish(TraceMeta()).flows == 6
    reader = TraceReader(tmp_path)
    read = reader.flows()
    ids = reader.dictionaries["flow_id"].values
    assert [ids[code] for code in read.id.tolist()] == ["7", "x\ud800", "7"] * 2
    assert read.name.tolist().count(-1) == 2
    assert bytes(read.phase.tolist()) == b"stfstf"
    assert read.time.tolist() == [10, 11, 12, 20, 21, 22]
    assert read.enclosing.tolist() == [False, False, True] * 2
    assert read.row.tolist() == [-1, 4, 5] * 2


def test_no_flows_is_an_empty_set(tmp_path):
    TraceWriter(tmp_path).finish(TraceMeta())
    assert len(TraceReader(tmp_path).flows().id) == 0
    assert len(TraceReader(tmp_path).read()) == 0


def test_nothing_appears_any_more_after_a_failure(tmp_path, monkeypatch):
    """The directory is removed then; a segment that its thread still wrote kept it there."""
    began, goes_on, wrote = threading.Event(), threading.Event(), []

    def slow(path, *_):
        began.set()
        assert goes_on.wait(120)
        wrote.append(path.name)

    monkeypatch.setattr("profd.segments.writer.write_segment_file", slow)
    with contextlib.suppress(ZeroDivisionError), TraceWriter(tmp_path) as writer:
        writer.write_segment(random_table(1, 5, 0, 0))
        assert began.wait(120)
        threading.Timer(0.05, goes_on.set).start()
        raise ZeroDivisionError
    assert wrote == [segment_file(0)]
