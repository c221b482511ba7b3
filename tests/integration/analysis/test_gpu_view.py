"""`profctl gpu` on real GPU traces against two oracles: SQL on the stored trace, and the JSON itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from profd.query import Trace

from tests.support.importing import real_trace
from tests.support.tables import nanoseconds

pytestmark = pytest.mark.slow

WORK = ("kernel", "memcpy", "memset")
NAMES = (
    "cuda_train_rank0",
    "cuda_diff_control",
    "cuda_alexnet",
    "cuda_event_sync",
    "cuda_triton",
    "ddp_rank0",
    "amd_minitoy",
    "resnet50_workers0",
)
# Gaps-and-islands: a row begins an island where nothing before it reaches that far.
ISLANDS = """
with work as (select *, end_ns as stop from events
              where kind in ('kernel', 'memcpy', 'memset') and device_type <> 'CPU' and duration_ns > 0),
     marked as (select *, coalesce(start_ns > max(stop) over w, true) as fresh from work
                window w as (partition by {by} order by start_ns, row
                           rows between unbounded preceding and 1 preceding)),
     islands as (select *, sum(fresh::int) over (partition by {by} order by start_ns, row) as island from marked),
     spans as (select {by}, island, min(start_ns) a, max(stop) b from islands group by {by}, island)
"""


@pytest.mark.parametrize("name", NAMES)
def test_against_sql_and_the_file(name: str, trace_data: Path, tmp_path: Path) -> None:
    trace, records = real_trace(name, trace_data, tmp_path)
    answer = trace.gpu()
    database = duckdb.connect()
    database.register("events", trace.to_arrow())
    _busy_and_overlap(answer, database)
    _delays_and_queues(answer, database)
    _copies(answer, database)
    _operators(answer, trace)
    _links(name, answer["links"], records)


def _busy_and_overlap(answer: dict[str, Any], database: duckdb.DuckDBPyConnection) -> None:
    busy = database.execute(ISLANDS.format(by="device") + "select device, sum(b - a) from spans group by 1").fetchall()
    assert {row["device"]: row["busy_ns"] for row in answer["devices"]} == dict(busy)
    by_stream = ISLANDS.format(by="device, stream")
    busy = database.execute(by_stream + "select device, stream, sum(b - a) from spans group by all").fetchall()
    found = {(row["device"], row["stream"]): row["busy_ns"] for row in answer["streams"] if row["busy_ns"]}
    assert found == {(device, stream): ns for device, stream, ns in busy}
    # Streams at work at a time, by adding one at each island's begin and taking it at its end.
    crowded = database.execute(
        by_stream
        + """, edges as (select device, a as t, 1 as d from spans union all select device, b, -1 from spans),
             sums as (select device, t, sum(d) as d from edges group by all),
             levels as (select device, t, sum(d) over (partition by device order by t) as n,
                               lead(t) over (partition by device order by t) - t as lasts from sums)
             select device, coalesce(sum(lasts) filter (n > 1), 0) from levels group by 1"""
    ).fetchall()
    assert {row["device"]: row["overlap_ns"] for row in answer["devices"]} == dict(crowded)


def _delays_and_queues(answer: dict[str, Any], database: duckdb.DuckDBPyConnection) -> None:
    database.execute(
        f"""create temp table launched as
            select k.device, k.stream, k.row, least(l.start_ns, k.start_ns) as asked, k.start_ns as begun
            from events k join events l on k.linked = l.row where k.kind in {WORK} and k.device_type <> 'CPU'"""
    )
    delays = database.execute(
        """select device, stream, quantile_disc(begun - asked, 0.5), quantile_disc(begun - asked, 0.95),
                  max(begun - asked) from launched group by all"""
    ).fetchall()
    keys = ("device", "stream", "launch_delay_p50_ns", "launch_delay_p95_ns", "launch_delay_max_ns")
    shown = {tuple(row[key] for key in keys) for row in answer["streams"] if row["launch_delay_max_ns"] is not None}
    assert shown == set(delays)
    queues = database.execute(
        """with edges as (select device, stream, asked as t, 1 as d from launched
                          union all select device, stream, begun, -1 from launched),
                sums as (select device, stream, t, sum(d) as d from edges group by all),
                levels as (select *, sum(d) over (partition by device, stream order by t) as n from sums)
           select device, stream, max(n) from levels group by all"""
    ).fetchall()
    shown = {(row["device"], row["stream"], row["queue_max"]) for row in answer["streams"] if row["queue_max"]}
    assert shown == {row for row in queues if row[2]}


def _copies(answer: dict[str, Any], database: duckdb.DuckDBPyConnection) -> None:
    copies = database.execute(
        """select device, name, count(*), sum(bytes)::bigint, sum(duration_ns)::bigint from events
           where kind in ('memcpy', 'memset') and device_type <> 'CPU' and (bytes is not null or name not in
             (select name from events where kind in ('memcpy', 'memset') and bytes is not null)) group by all"""
    ).fetchall()
    keys = ("device", "name", "count", "bytes", "duration_ns")
    assert {tuple(row[key] for key in keys) for row in answer["copies"]} == set(copies)


def _operators(answer: dict[str, Any], trace: Trace) -> None:
    rows = {row.name: row for row in trace.key_averages() if row.device_type == "CPU"}
    assert answer["ops"]
    for op in answer["ops"]:
        assert op["self_device_time_total_ns"] == rows[op["name"]].self_device_time_total_ns
    largest = max(row.self_device_time_total_ns for row in rows.values())
    assert answer["ops"][0]["self_device_time_total_ns"] == largest


def _links(name: str, links: dict[str, Any], records: list[dict[str, Any]]) -> None:
    """Of the device work whose launch the file has, by correlation id, at least 99.9 % is linked."""
    complete = [one for one in records if one.get("ph") == "X" and isinstance(one.get("args"), dict)]

    def ids(*categories: str) -> list[str]:
        chosen = [one["args"] for one in complete if str(one.get("cat")).lower() in categories]
        return [str(args["correlation"]) for args in chosen if "correlation" in args]

    calls = set(ids("cuda_runtime", "cuda_driver", "runtime"))
    work = ids("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")
    stated = sum(one in calls for one in work)
    assert stated > 0
    assert links["linked"] >= 0.999 * stated
    assert links["stated"] >= stated
    print(f"{name}: {links['linked']} of {stated} device events that state their launch are linked")


def test_speed_of_copies_is_what_kineto_says(trace_data: Path, tmp_path: Path) -> None:
    """Kineto writes bytes by duration into each copy; ours is the same added up."""
    trace, records = real_trace("cuda_diff_control", trace_data, tmp_path)
    copies = [one for one in records if one.get("cat") == "gpu_memcpy"]
    for row in trace.gpu()["copies"]:
        same = [one for one in copies if one["name"] == row["name"]]
        if not same:
            continue
        moved = sum(float(one["args"]["memory bandwidth (GB/s)"]) * nanoseconds(one["dur"]) for one in same)
        # This file has its durations in whole us; the speeds in it were taken before they were cut.
        cut = 1000 * len(same) / row["duration_ns"]
        assert row["bytes_per_second"] == pytest.approx(moved / row["duration_ns"] * 1e9, rel=cut)
