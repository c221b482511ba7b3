"""The Parquet file, read by DuckDB and by pyarrow."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from profd.errors import BadInput
from profd.events import Kind, Tracks
from profd.questions.jobs import find

from tests.support.tables import Event, store, table_of
from tests.unit.profd.export.exported import exported

TRACKS = Tracks(processes=[{"id": 42, "name": "python"}], threads=[{"id": 1, "process": 0}, {"id": "s", "process": 0}])
ROWS = [
    Event("op", 1000, 1500, fields={"cat": "cpu_op", "external": 5, "process": 0}),
    Event("kernel\ud800", 1100, 1900, Kind.KERNEL, thread=1),
    Event("open", 1600, None),
]


def rows(data: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(io.BytesIO(data)).to_pylist()
    return found


def test_words_instead_of_codes(tmp_path: Path) -> None:
    count, data = exported(store(table_of(ROWS), tmp_path / "t", rows=2, tracks=TRACKS), "parquet")
    first, second, third = rows(data)
    assert count == 3
    wanted = {"row": 0, "name": "op", "kind": "cpu_op", "category": "cpu_op", "process": "42", "process_name": "python"}
    wanted |= {"thread": "1", "thread_name": None, "start_ns": 1000, "end_ns": 1500, "duration_ns": 500, "external": 5}
    assert first.items() >= wanted.items()
    assert (second["name"], second["device_type"], second["thread"]) == ("kernel\x1ad800", "CUDA", "s")
    assert (third["row"], third["end_ns"], third["duration_ns"], third["external"]) == (2, None, None, None)


def test_duckdb_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    file.write_bytes(exported(store(table_of(ROWS), tmp_path / "t", tracks=TRACKS), "parquet")[1])
    query = "select kind, sum(duration_ns) from read_parquet(?) group by 1 order by 1"
    assert duckdb.execute(query, [str(file)]).fetchall() == [("cpu_op", 500), ("kernel", 800)]


def test_a_part_keeps_its_row_numbers(tmp_path: Path) -> None:
    directory = store(table_of(ROWS), tmp_path / "t", tracks=TRACKS)
    assert [row["row"] for row in rows(exported(directory, "parquet", min_duration_ns=600)[1])] == [1, 2]
    assert rows(exported(store(table_of([]), tmp_path / "empty"), "parquet")[1]) == []


def test_into_a_pipe(tmp_path: Path) -> None:
    directory = store(table_of(ROWS), tmp_path / "t", tracks=TRACKS)
    reading, writing = os.pipe()
    received = bytearray()

    def drain() -> None:
        with open(reading, "rb") as pipe:
            received.extend(pipe.read())

    reader = threading.Thread(target=drain)
    reader.start()
    find("export")({"trace_dir": str(directory), "format": "parquet"}, [writing], lambda what, share: None)
    os.close(writing)
    reader.join()
    assert len(rows(bytes(received))) == 3


def test_it_is_not_compressed_twice(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"without \.gz"):
        exported(store(table_of(ROWS), tmp_path / "t"), "parquet", gzip=True)
