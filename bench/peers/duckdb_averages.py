"""DuckDB on the rows of a stored trace: the key averages that SQL can give without torch's view rules."""

from __future__ import annotations

import time

import duckdb

QUERY = """
select name, count(*), sum("end" - start), sum(self_time)
from read_parquet('{files}', union_by_name=true) group by name order by 4 desc
"""


def seconds(trace_dir: str, repeat: int) -> list[float]:
    """Seconds of each of several runs in a warm process."""
    database = duckdb.connect()
    taken = []
    for _ in range(repeat + 1):
        begin = time.perf_counter()
        database.execute(QUERY.format(files=f"{trace_dir}/segment-*.parquet")).fetchall()
        taken.append(time.perf_counter() - begin)
    return taken[1:]
