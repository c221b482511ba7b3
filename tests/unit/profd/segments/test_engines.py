"""The queries of docs/store.md, as they stand there, by the engines that they are for."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from profd.collate.collator import Collator
from profd.events import COLUMNS, LISTS, DeviceType, Kind
from profd.importing import pipeline
from profd.query.averages import Grouping, averages_of_trace
from profd.segments.contract import FIELDS, SCHEMA
from profd.segments.reader import TraceReader

from tests.support.importing import import_trace

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "store.md"
ENGINES_PYTHON = ROOT / ".venv-engines" / "bin" / "python"
IN_THE_PAGE = "/var/lib/profd/traces/1ngg8jm2p27wn"
OURS = ("DuckDB", "pyarrow")  # are in the environment of the tests, too
ENGINES = [*OURS, "polars", "pandas", "chdb"]
CLUSTERS = ("Ray", "Spark")  # of processes
CLUSTERS_PYTHON = ROOT / ".venv-spark" / "bin" / "python"
# Executors are processes of their own, as on a cluster.
SPARK = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_SUBMIT_ARGS": "--master local-cluster[2,1,1024] --conf spark.driver.host=127.0.0.1"
    " --conf spark.driver.bindAddress=127.0.0.1 --conf spark.ui.enabled=false pyspark-shell",
}
SECONDS = {"Spark": 900, "Ray": 600}
asked = pytest.mark.skipif(not os.environ.get("PROFD_TEST_ENGINES"), reason="make test-engines runs it: minutes")
ray, spark = (pytest.param(engine, marks=asked) for engine in ("Ray", "Spark"))

# What an engine made of it, as plain rows.
TO_JSON = """
import json
def plain(table):
    if hasattr(table, "take_all"):
        return [list(row.values()) for row in table.take_all()]
    if hasattr(table, "toLocalIterator"):
        return [list(row) for row in table.collect()]
    if hasattr(table, "to_pylist"):
        return [list(row.values()) for row in table.to_pylist()]
    if hasattr(table, "fetchall"):
        return table.fetchall()
    return table.rows() if hasattr(table, "rows") else table.astype(object).where(table.notna(), None).values.tolist()
def known(value):
    return 0 if value is None or value != value else value if isinstance(value, str) else int(value)
print("ROWS", json.dumps([[known(value) for value in row] for row in plain(averages)]))
"""
# How many values each column has, all of them read.
COUNTS = {
    "DuckDB": """
import duckdb
table = duckdb.sql("select * from 'FOLDER/segment-*.parquet'").to_arrow_table()
counts = {name: len(table) - table.column(name).null_count for name in table.column_names}
""",
    "pyarrow": """
import glob, pyarrow.dataset as ds
table = ds.dataset(sorted(glob.glob("FOLDER/segment-*.parquet"))).to_table()
counts = {name: len(table) - table.column(name).null_count for name in table.column_names}
""",
    "polars": """
import polars as pl
table = pl.read_parquet("FOLDER/segment-*.parquet")
counts = {name: len(table) - table[name].null_count() for name in table.columns}
""",
    "pandas": """
import glob, pandas as pd
files = sorted(glob.glob("FOLDER/segment-*.parquet"))
table = pd.concat([pd.read_parquet(file, engine="fastparquet") for file in files])
counts = {name: int(table[name].notna().sum()) for name in table.columns}
""",
    "chdb": """
import chdb
files = "file('FOLDER/segment-*.parquet', Parquet)"
names = [json.loads(line)["name"] for line in str(chdb.query(f"describe {files}", "JSONEachRow")).splitlines()]
asked = ", ".join(f"count({name}) as {name}" for name in names)
counts = json.loads(str(chdb.query(f"select {asked} from {files}", "JSONEachRow")))
counts = {name: int(counts[name]) for name in names}
""",
    "Spark": """
from pyspark.sql import SparkSession, functions as f
events = SparkSession.builder.getOrCreate().read.parquet("FOLDER/segment-*.parquet")
(row,) = events.select([f.count(name).alias(name) for name in events.columns]).collect()
counts = row.asDict()
""",
}


def event(name, start, duration, tid=1, cat="cpu_op", **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": duration, "args": args}


def training(steps: int):
    """Frames that last longer than a segment, calls within them, work of a device; odd text and arguments.

    Some durations and gaps are seconds: differences of 30 bits and more.
    """
    yield event("train", 0, 1000 * steps + 10, cat="user_annotation")
    for pause in range(4):
        yield event("wait", 10**8 + pause * 10**7, 5 * 10**6 * (pause % 2) + 7, cat="user_annotation")
    for step in range(steps):
        at = 1 + 1000 * step
        yield event(f"ProfilerStep#{step}", at, 990, cat="user_annotation")
        yield event("aten::mm", at + 10, 500, **{"Ev Idx": step, "Input Dims": [[2, 3], [3, 2]], "note": ["a", None]})
        yield event("broken \ud800 \x1a", at + 20, 100, **{"half": 0.5, "key \udc00": "\udc01"})
        launch = {"cbid": 211, "correlation": step + 1}
        yield event("cudaLaunchKernel", at + 30, 5, cat="cuda_runtime", **launch)
        shape = {"grid": [1, 2, 3], "block": [32, 1, 1], "queued": 0, "blocks per SM": 0.5, "blocks": 2**70}
        kernel = {"device": 0, "stream": 7, "correlation": step + 1, **shape}
        yield event("gemm", at + 40, 300, tid=7, cat="kernel", **kernel)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engines")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "Collator", partial(Collator, segment_rows=37))
        patch.setattr("profd.segments.parquet.GROUP_ROWS", 11)
        text = json.dumps({"traceEvents": list(training(30))})
        (folder / "trace.json").write_text(text)
        import_trace(folder / "trace.json", folder / "trace")
    assert len(TraceReader(folder / "trace").segments) > 3
    return folder / "trace"


def run(engine: str, program: str, folder: Path) -> str:
    python = str(CLUSTERS_PYTHON if engine in CLUSTERS else ENGINES_PYTHON)
    if engine not in CLUSTERS and not ENGINES_PYTHON.exists():
        if engine not in OURS:
            pytest.skip(f"no {ENGINES_PYTHON}: make .venv-engines/.installed")
        python = sys.executable
    environment = {**os.environ, **(SPARK if engine == "Spark" else {}), "SPARK_WORKER_DIR": str(folder.parent)}
    done = subprocess.run(
        [python, "-c", program], capture_output=True, text=True, timeout=SECONDS.get(engine, 300), env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def query_of(engine: str, folder: Path) -> str:
    found = re.search(rf"^### {engine}$.*?```python\n(.*?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, f"no query for {engine}"
    assert IN_THE_PAGE in found[1]
    return found[1].replace(IN_THE_PAGE, str(folder))


def our_averages(folder: Path) -> dict[tuple[str, str], list[int]]:
    """(name, device) -> calls, total, self: as `top --raw` has them; annotations on a device are not apart."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in averages_of_trace(TraceReader(folder), raw=True, grouping=Grouping()):
        name = row.name.replace("\x1a", "\x1a001a").replace("\ud800", "\x1ad800")
        into = sums[name, row.device_type]
        into[0] += row.count
        into[1] += row.cpu_time_total_ns + row.device_time_total_ns
        into[2] += row.self_cpu_time_total_ns + row.self_device_time_total_ns
    return dict(sums)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [*ENGINES, ray, spark])
def test_key_averages_are_ours(trace, engine):
    said = run(engine, query_of(engine, trace) + TO_JSON, trace)
    (rows,) = [json.loads(line.removeprefix("ROWS ")) for line in said.splitlines() if line.startswith("ROWS ")]
    found = {(name, DeviceType(device).label): numbers for name, device, *numbers in rows}
    assert found == our_averages(trace)
    assert found["train", "CPU"][2] == 30 * 10_000 + 10_000  # its steps, and what is between them


@pytest.mark.slow
@pytest.mark.parametrize("engine", [*ENGINES, spark])
def test_every_column_is_read(trace, engine):
    program = COUNTS[engine].replace("FOLDER", str(trace))
    said = run(engine, f"import json\n{program}\nprint('COUNTS', json.dumps(counts))", trace)
    counts = list(json.loads(said.split("COUNTS ")[1]).values())
    files = [trace / info.file for info in TraceReader(trace).segments]
    tables = [pq.ParquetFile(file).read() for file in files]
    assert counts == [sum(len(table) - table.column(name).null_count for table in tables) for name in FIELDS]


def test_every_segment_has_one_schema(trace):
    for info in TraceReader(trace).segments:
        file = pq.ParquetFile(trace / info.file)
        assert file.schema_arrow.equals(SCHEMA)
        assert file.metadata.metadata == {b"profd.segment": b"2"}  # no ARROW:schema
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
        assert {chunk.compression for chunk in chunks} <= {"UNCOMPRESSED", "SNAPPY", "ZSTD"}
        encodings = {name for chunk in chunks for name in chunk.encodings}
        assert encodings <= {"PLAIN", "RLE", "RLE_DICTIONARY", "DELTA_BINARY_PACKED"}


def columns_as_documented() -> str:
    """The rows of the table in docs/store.md."""
    rows = []
    for field in FIELDS.values():
        shown = str(field.type) if field.nullable else f"{field.type}, never null"
        if field.name == "dur":
            what = "ns; null: no end was seen; 0: an instant"
        elif field.name in ("kind", "device_type"):
            words: type[Kind | DeviceType] = Kind if field.name == "kind" else DeviceType
            what = ", ".join(f"{word.value} {word.label}" for word in words)
        elif field.column is not None:
            what = COLUMNS[field.column].doc.replace("absent:", "null:").replace("|", "/")
        elif field.arg is not None:
            what = f"argument `{field.arg[0]}`" if field.arg[0] not in LISTS else f"JSON: {LISTS[field.arg[0]]}"
        else:
            what = "JSON object of all other arguments"
        rows.append(f"| `{field.name}` | {shown} | {what} |\n")
    return "".join(rows)


def test_the_page_names_every_column():
    """After a change: put `columns_as_documented()` between the marks."""
    assert f"<!-- columns -->\n{columns_as_documented()}<!-- end of columns -->" in PAGE.read_text()
