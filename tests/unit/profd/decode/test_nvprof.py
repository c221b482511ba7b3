"""nvprof's databases to rows: meaning, agreement with a slow obvious twin, and hostile files."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from profd import limits
from profd.decode.nvprof import NvprofDecoder
from profd.decode.sniff import sniff
from profd.decode.sqlite_file import SqliteFile
from profd.errors import BadTrace, Exhausted
from profd.events import NO_END, Kind
from profd.importing.pipeline import store_trace
from profd.segments.reader import TraceReader

from tests.support.nvprof import PID, PREFIX, T0, TABLES, TID, Database, object_id, training_step

Row = dict[str, Any]


def decode(path: Path, scratch: Path | None = None) -> tuple[NvprofDecoder, list[Row]]:
    with path.open("rb") as file:
        decoder = NvprofDecoder(file, path.stat().st_size, scratch=scratch)
        rows: list[Row] = []
        for batch in decoder.batches():
            columns = {name: values.tolist() for name, values in batch.events.columns.items()}
            found = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
            for (key, _), arg in batch.events.args.items():
                for row, value in zip(arg.rows.tolist(), arg.values.tolist(), strict=True):
                    found[row][key] = json.loads(arg.dictionary.values[value]) if arg.dictionary else value
            rows += found
    names = decoder.dictionaries["name"].values
    for row in rows:
        row["name"] = names[row["name"]]
    return decoder, rows


def one(rows: list[Row], name: str) -> Row:
    (row,) = [row for row in rows if row["name"] == name]
    return row


def test_rows_of_each_table(tmp_path: Path) -> None:
    decoder, rows = decode(training_step(tmp_path / "a.nvvp"))
    assert Counter(Kind(row["kind"]).label for row in rows) == {
        "cpu_op": 2,
        "runtime": 3,
        "driver": 1,
        "kernel": 1,
        "memcpy": 1,
        "memset": 1,
        "overhead": 1,
    }
    kernel = one(rows, "_Z4gemmPf")
    assert (kernel["start"], kernel["end"], kernel["correlation"]) == (T0 + 300, T0 + 900, 11)
    assert (kernel["device"], kernel["context"], kernel["stream"]) == (0, 1, 7)
    assert (kernel["grid"], kernel["block"]) == ([8, 1, 1], [128, 1, 1])
    assert (kernel["shared memory"], kernel["registers per thread"]) == (48, 40)
    copy = one(rows, "Memcpy HtoD (Pageable -> Device)")
    assert (copy["bytes"], copy["correlation"]) == (4096, 13)  # of the runtime call, not of the driver's
    assert one(rows, "Memset (Device)")["bytes"] == 64
    assert one(rows, "cuLaunchKernel")["correlation"] == 12
    assert one(rows, "Activity Buffer Flush")["end"] == T0 + 720
    assert decoder.tracks.processes == [
        {"id": PID, "name": "train.py"},
        {"id": "device 0", "name": "device 0 (Tesla V100)"},
    ]
    assert decoder.tracks.threads == [
        {"id": TID, "process": 0, "name": "trainer"},
        {"id": 7, "process": 1, "name": "stream 7"},
    ]
    assert (decoder.findings.lost, decoder.findings.counted, decoder.findings.truncated) == ({}, {}, "")


def test_stored_tree_goes_from_op_to_launch_to_kernel(tmp_path: Path) -> None:
    path, staging = training_step(tmp_path / "a.nvvp"), tmp_path / "staging"
    staging.mkdir()
    with path.open("rb") as file:
        files = [{"format": "", "label": "a", "fd": 0}]
        result = store_trace({"files": files, "staging": str(staging), "meta": {}}, [file.fileno()], lambda *_: None)
    assert (result["events"], result["gpu_events"], result["lost"]) == (10, 3, [])
    assert not [left for left in staging.iterdir() if left.name.startswith("sqlite-")]
    parents: dict[str, str | None] = {}
    for segment in TraceReader(staging).iterate():
        names = [segment.dictionaries["name"].values[code] for code in segment.column("name")]
        parents |= {
            name: None if parent < 0 else names[parent]
            for name, parent in zip(names, segment.column("parent").tolist(), strict=True)
        }
    assert parents["_Z4gemmPf"] == "cudaLaunchKernel"
    assert parents["cudaLaunchKernel"] == "aten::mm"
    assert parents["aten::mm"] == "step"
    assert parents["Memcpy HtoD (Pageable -> Device)"] == "cudaMemcpyAsync"


def test_markers_that_do_not_pair(tmp_path: Path) -> None:
    base = Database(tmp_path / "a.nvvp")
    place = {"objectKind": 2, "objectId": object_id(), "domain": 0}
    base.range(7, "whole", 10, 20)
    base.add("MARKER", timestamp=T0 + 1, id=1, flags=2, name=base.string("never ends"), **place)
    base.add("MARKER", timestamp=T0 + 2, id=2, flags=4, name=0, **place)
    base.add("MARKER", timestamp=T0 + 3, id=3, flags=1, name=base.string("mark"), **place)
    base.add("MARKER", timestamp=T0 + 4, id=4, flags=2, name=base.string("first"), **place)
    base.range(4, "second", 6, 5)
    base.add("MARKER", timestamp=T0 + 8, id=5, flags=1, name=777, **place | {"objectId": b"\1"})
    decoder, rows = decode(base.close())
    found = {row["name"]: (row["start"] - T0, row["end"] if row["end"] == NO_END else row["end"] - T0) for row in rows}
    assert found == {
        "whole": (10, 20),
        "never ends": (1, NO_END),
        "mark": (3, 3),
        "first": (4, NO_END),
        "second": (6, 6),
        "string 777": (8, 8),
    }
    assert one(rows, "mark")["kind"] == Kind.INSTANT
    assert decoder.findings.lost == {"unmatched_end": 1}
    assert decoder.findings.counted == {
        "duplicate_marker": 1,
        "end_before_start": 1,
        "missing_string": 1,
        "marker_without_thread": 1,
        "without_end": 1,
    }


def test_bad_rows_are_counted_and_the_others_kept(tmp_path: Path) -> None:
    base = Database(tmp_path / "a.nvvp")
    base.call(13, 1, 2, 5)
    for wrong in ({"cbid": "13"}, {"cbid": None}, {"start": 1.5}, {"end": b"x"}, {"correlationId": "a"}):
        values = {"cbid": 13, "start": T0, "end": T0, "processId": 1, "threadId": 1, "correlationId": 1}
        base.add("RUNTIME", **values | wrong)
    base.call(13, 3, 4, 6, processId=1 << 40)
    base.add("RUNTIME", cbid=13, start=0, end=0, processId=1, threadId=1, correlationId=1)
    base.call(9999, 5, 4, 7, threadId=-5)
    base.kernel("k", 9, -T0, 7, gridX=None, registersPerThread="many", dynamicSharedMemory=(1 << 63) - 1)
    decoder, rows = decode(base.close())
    # SQLite turns '13' into 13 in a column of integers.
    assert decoder.findings.lost == {"bad_row": 4, "bad_id": 1, "bad_time": 1}
    assert decoder.findings.counted == {"end_before_start": 1, "without_end": 1}
    assert sorted(row["name"] for row in rows) == ["CUDA runtime call 9999", "cudaLaunch", "cudaLaunch", "k"]
    kernel = one(rows, "k")
    assert kernel["end"] == NO_END
    assert {"grid", "registers per thread", "shared memory"}.isdisjoint(kernel)
    assert (1 << 32) - 5 in [thread["id"] for thread in decoder.tracks.threads]


RANGES = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from(["a", "b", ""]), st.integers(1, 50)), max_size=30
)  # number, name ("": an end), time


def twin(events: list[tuple[int, str, int]]) -> Counter[tuple[str, int, int]]:
    """Each start with the next row of its number, if that is an end."""
    found: Counter[tuple[str, int, int]] = Counter()
    for place, (number, name, time) in enumerate(events):
        if name:
            following = next((later for later in events[place + 1 :] if later[0] == number), None)
            ended = following is not None and not following[1]
            found[name, time, max(time, following[2]) if ended and following else NO_END] += 1
    return found


@given(events=RANGES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ranges_as_a_slow_twin_pairs_them(events: list[tuple[int, str, int]], tmp_path: Path) -> None:
    path = tmp_path / "a.nvvp"
    path.unlink(missing_ok=True)
    base = Database(path, ["StringTable", "MARKER"])
    for number, name, time in events:
        base.add("MARKER", id=number, timestamp=time, name=base.string(name) if name else 0, flags=0)
    decoder, rows = decode(base.close())
    assert Counter((row["name"], row["start"], row["end"]) for row in rows) == twin(events)
    starts = sum(bool(name) for _, name, _ in events)
    ends = len(events) - starts - sum(row["end"] != NO_END for row in rows)
    assert decoder.findings.lost.get("unmatched_end", 0) == ends


def test_missing_tables_and_columns(tmp_path: Path) -> None:
    base = Database(tmp_path / "a.nvvp", ["StringTable", "MARKER"])
    base.connection.execute(f"CREATE TABLE {PREFIX}RUNTIME (start INT, end INT)")
    base.connection.execute(f"CREATE TABLE {PREFIX}UNIFIED_MEMORY_COUNTER (value INT)")
    base.connection.execute(f"INSERT INTO {PREFIX}UNIFIED_MEMORY_COUNTER VALUES (1)")
    base.range(1, "kept", 1, 2)
    decoder, rows = decode(base.close())
    assert [row["name"] for row in rows] == ["kept"]
    assert decoder.findings.lost == {"unreadable_table": 1}
    assert any("'cbid'" in text for text in decoder.findings.warnings)
    assert any("UNIFIED_MEMORY_COUNTER" in text for text in decoder.findings.warnings)


@pytest.mark.parametrize(("table", "says"), [("StringIds", "Nsight"), ("people", "no table of nvprof")])
def test_other_databases_are_refused(tmp_path: Path, table: str, says: str) -> None:
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE {table} (id INT)")
    connection.close()
    with path.open("rb") as file:
        assert sniff(file) == "nvprof"
    with pytest.raises(BadTrace, match=says):
        decode(path)


@pytest.mark.parametrize(
    "statement",
    [
        f"CREATE VIEW {PREFIX}RUNTIME AS SELECT 13 AS cbid, 1 AS start, 2 AS end, 3 AS processId, 4 AS threadId,"
        " 5 AS correlationId",
        f"CREATE VIRTUAL TABLE {PREFIX}RUNTIME USING fts4(cbid, start, end, processId, threadId, correlationId)",
        f"CREATE TABLE {PREFIX}RUNTIME (start INT, end INT, processId INT, threadId INT, correlationId INT,"
        " cbid INT GENERATED ALWAYS AS (abs(start)))",
    ],
)
def test_nothing_that_runs_is_read(tmp_path: Path, statement: str) -> None:
    base = Database(tmp_path / "a.nvvp", ["StringTable", "MARKER"])
    try:
        base.connection.execute(statement)
    except sqlite3.OperationalError as error:
        pytest.skip(f"this SQLite cannot make it: {error}")
    if "VIEW" not in statement:
        base.connection.execute(
            f"INSERT INTO {PREFIX}RUNTIME (start, end, processId, threadId, correlationId) VALUES (1, 2, 3, 4, 5)"
        )
    base.range(1, "kept", 1, 2)
    _, rows = decode(base.close())
    assert [row["name"] for row in rows] == ["kept"]


def test_statements_beyond_reading_are_denied(tmp_path: Path) -> None:
    path = training_step(tmp_path / "a.nvvp")
    with path.open("rb") as file:
        database = SqliteFile(file, tmp_path)
    connection = database._connection
    for statement in (
        f"ATTACH '{path}' AS other",
        "SELECT load_extension('x')",
        "SELECT readfile('/etc/passwd')",
        "DELETE FROM StringTable",
        "PRAGMA writable_schema = ON",
        "SELECT * FROM pragma_database_list",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
    ):
        with pytest.raises(sqlite3.Error):
            connection.execute(statement).fetchall()
    database.close()
    assert [left.name for left in tmp_path.iterdir()] == ["a.nvvp"]


def large(path: Path, ranges: int = 400) -> Path:
    base = Database(path)
    for number in range(ranges):
        base.range(number + 1, f"op {number}", 10 * number, 10 * number + 9)
        base.call(211, 10 * number + 1, 10 * number + 2, number + 1)
        base.kernel(f"kernel {number}", 10 * number + 3, 10 * number + 4, number + 1)
    return base.close()


@pytest.mark.parametrize("share", [0.0005, 0.05, 0.3, 0.6, 0.9, 0.999])
def test_what_is_left_of_a_file_that_is_cut_off(tmp_path: Path, share: float) -> None:
    path = large(tmp_path / "a.nvvp")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    if share < 0.001:
        with pytest.raises(BadTrace):
            decode(path)
        return
    decoder, rows = decode(path)
    assert decoder.findings.truncated
    assert decoder.findings.lost["truncated"] == 1
    assert len(rows) < 1200


@given(hits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=20))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(hits=[(0.03125, 128)])  # damaged text in SQLite's own message
def test_flipped_bytes_lose_rows_or_the_file_never_more(hits: list[tuple[float, int]], tmp_path: Path) -> None:
    source = tmp_path / "whole.nvvp"
    if not source.exists():
        large(source, 60)
    damaged = bytearray(source.read_bytes())
    for share, value in hits:
        damaged[int(len(damaged) * share)] = value
    path = tmp_path / "a.nvvp"
    path.write_bytes(damaged)
    with contextlib.suppress(BadTrace, Exhausted):
        decode(path)


def test_only_a_header(tmp_path: Path) -> None:
    path = tmp_path / "a.nvvp"
    for text in (b"SQLite format 3\x00", b"SQLite format 3\x00" + bytes(84), b"SQLite format 3\x00" + bytes(5000)):
        path.write_bytes(text)
        with pytest.raises(BadTrace):
            decode(path)


def test_time_strings_and_tracks_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = large(tmp_path / "a.nvvp", 3000)
    monkeypatch.setattr(limits, "DICTIONARY_BYTES_MAX", 1000)
    with pytest.raises(Exhausted, match="strings"):
        decode(path)
    monkeypatch.undo()
    with path.open("rb") as file:
        database = SqliteFile(file, tmp_path)
    database._deadline = 0.0
    with pytest.raises(Exception, match="too long"):
        list(database.rows("StringTable", ["_id_"]))
    database.close()
    base = Database(tmp_path / "b.nvvp")
    for thread in range(5):
        base.call(13, 1, 2, 3, threadId=thread)
    monkeypatch.setattr(limits, "TRACKS_MAX", 3)
    with pytest.raises(Exhausted, match="threads"):
        decode(base.close())


def test_more_open_ranges_than_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = Database(tmp_path / "a.nvvp")
    for number in range(1, 4):
        base.add("MARKER", timestamp=T0 + number, id=number, flags=2, name=base.string(str(number)))
    monkeypatch.setattr(limits, "OPEN_EVENTS_MAX", 2)
    decoder, rows = decode(base.close())
    assert sorted(row["name"] for row in rows) == ["1", "2", "3"]
    assert decoder.findings.counted["too_many_open"] == 1


def test_journals_beside_the_file_are_not_read(tmp_path: Path) -> None:
    path = training_step(tmp_path / "a.nvvp")
    _, before = decode(path)
    for suffix in ("-journal", "-wal"):
        (tmp_path / f"a.nvvp{suffix}").write_bytes(os.urandom(4096))
    _, after = decode(path)
    assert before == after


def test_every_table_may_be_empty(tmp_path: Path) -> None:
    decoder, rows = decode(Database(tmp_path / "a.nvvp", TABLES).close())
    assert (rows, decoder.findings.lost) == ([], {})
