"""DuckDB on the same rows: groups by name, device type and whether it is an annotation, and what else is asked.

It sums what the rows have; torch's view rules (wrappers, utility ops, device time by op) it does not know. One thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa

# `kind`: those of annotations, as profd.events.Kind numbers them.
STORED = """
select name, device_type, kind in (2, 12) as annotation {context}, count(*), sum(dur), sum(self_time)
from read_parquet('{files}') group by all
"""
OF_FILES = """
select filename, name, device_type, kind in (2, 12) as annotation, count(*), sum(dur), sum(self_time)
from read_parquet([{files}], filename = true) group by all
"""
COLUMNS = """
select name, device_type, annotation {context}, count(*) filter (counted),
  sum(cpu), sum(self_cpu), sum(device), sum(self_device)
from calls group by all
"""


def stored(trace_dir: str, context: str = "") -> Callable[[], list[Any]]:
    """Runs on the Parquet files of a stored trace; `context`: a column to group by besides."""
    return _query(STORED.format(context=_also(context), files=f"{trace_dir}/segment-*.parquet"), None)


def of_files(patterns: list[str], threads: int = 1) -> Callable[[], list[Any]]:
    """Runs on the files of many traces, each of which is a rank."""
    return _query(OF_FILES.format(files=", ".join(f"'{one}'" for one in patterns)), None, threads)


def columns(calls: pa.Table, context: str = "") -> Callable[[], list[Any]]:
    """Runs on columns in memory, of which names are a dictionary and its codes."""
    return _query(COLUMNS.format(context=_also(context)), calls)


def _also(context: str) -> str:
    return f", {context}" if context else ""


def _query(text: str, calls: pa.Table | None, threads: int = 1) -> Callable[[], list[Any]]:
    database = duckdb.connect()
    database.execute(f"set threads = {threads}")
    if calls is not None:
        database.register("calls", calls)
    return lambda: database.execute(text).fetchall()
