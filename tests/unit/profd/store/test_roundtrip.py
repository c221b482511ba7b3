"""What is written is what is read."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profd.events import COLUMNS, NO_END, ArgColumn, Dictionary, EventTable, Flows
from profd.segments.meta import TraceMeta
from profd.segments.reader import TraceReader
from profd.segments.writer import TraceWriter

from tests.unit.profd.store.tables import plain, random_table

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
        read = duckdb.connect().execute(f"SELECT {words} FROM '{path}'").fetchall()
        expected = [{name: row[name] for name in names if name in row} for row in plain(table)]
        assert [
            {name: value for name, value in zip(names, row, strict=True) if value is not None and value == value}
            for row in read
        ] == [{name: _as_stored(value) for name, value in row.items()} for row in expected]


def _as_stored(value):
    """Text with lone surrogates is kept as bytes; with it, all of its column."""
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


def test_files_of_before_are_read(tmp_path):
    """Deltas, dictionaries and zstd, as traces had them at first."""
    tables, meta = write(tmp_path / "t", 5, [50])
    path = tmp_path / "t" / meta.segments[0].file
    stored = pq.read_table(path)
    deltas = [field.name for field in stored.schema if field.type == pa.int64()]
    pq.write_table(
        stored,
        path,
        compression="zstd",
        use_dictionary=[name for name in stored.column_names if name not in deltas],
        column_encoding=dict.fromkeys(deltas, "DELTA_BINARY_PACKED"),
        write_page_checksum=True,
    )
    assert plain(TraceReader(tmp_path / "t").read()) == plain(tables[0])


def minimal(start: list[int], first_row: int = 0) -> EventTable:
    return EventTable({"start": np.array(start, dtype=np.int64)}, {}, {}, first_row)


def test_late_patches_win_over_what_the_segment_says(tmp_path):
    writer = TraceWriter(tmp_path)
    writer.write_segment(minimal([1, 2, 3]))
    writer.write_segment(minimal([4, 5], 3))
    writer.write_late(np.array([1, 4]), {"self_time": np.array([10, 40]), "parent": np.array([0, 3])})
    writer.write_late(np.array([4]), {"self_time": np.array([41])})
    writer.write_late(np.array([1]), {"parent": np.array([-1]), "end": np.array([900])})
    meta = writer.finish(TraceMeta())
    assert meta.end_ns == 900
    read = TraceReader(tmp_path).read()
    assert read.columns["self_time"].tolist() == [NO_END, 10, NO_END, NO_END, 41]
    assert read.columns["parent"].tolist() == [-1, -1, -1, -1, 3]
    assert "parent" not in TraceReader(tmp_path).read(["self_time"]).columns


def test_window_knows_of_ends_that_came_late(tmp_path):
    """Row groups are chosen by bounds that were written before the end was known."""
    writer = TraceWriter(tmp_path)
    start = np.arange(100, dtype=np.int64)
    writer.write_segment(EventTable({"start": start, "end": start + 1}, {}))
    writer.write_late(np.array([3, 50]), {"end": np.array([1000, 2000])})
    writer.finish(TraceMeta())
    reader = TraceReader(tmp_path)
    assert reader.read(window=(500, 600)).columns["row"].tolist() == [3, 50]
    assert reader.read(window=(1500, 1600)).columns["row"].tolist() == [50]
    assert reader.read(["start"], window=(10, 11)).columns["row"].tolist() == [3, 10]
    assert len(reader.read(window=(2000, 3000))) == 0


def test_rows_out_of_order_are_a_fault(tmp_path):
    writer = TraceWriter(tmp_path)
    with pytest.raises(ValueError, match="start order"):
        writer.write_segment(minimal([2, 1]))
    writer.write_segment(minimal([5, 6]))
    with pytest.raises(ValueError, match="start order"):
        writer.write_segment(minimal([4], 2))
    with pytest.raises(ValueError, match="expected 2"):
        writer.write_segment(minimal([9], 3))
    with pytest.raises(ValueError, match="cannot be patched"):
        writer.write_late(np.array([0]), {"name": np.array([1])})


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
