"""Key averages beside DuckDB on the same rows, turn about in one process: seconds of pairs, by default of CPU."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from profd.events import EventTable
from profd.query import rules, view
from profd.query.averages import Grouping, averages, averages_of_trace, columns_for
from profd.query.captured import Captured
from profd.query.top import top_of_capture
from profd.segments.meta import META_FILE, encode_json, read_meta
from profd.segments.reader import TraceReader

from bench.peers import duckdb_averages

PAIRS = 9
STACK_FRAMES = 5
GROUPINGS = {"": Grouping(), "inputs": Grouping(input_shape=True), "stack": Grouping(stack_n=STACK_FRAMES)}
Pairs = list[tuple[float, float]]


def stored(trace_dir: str, context: str) -> Pairs:
    """(ours, DuckDB's) of a stored trace, grouped by one of GROUPINGS besides the name."""

    def ours() -> object:
        return averages_of_trace(TraceReader(Path(trace_dir)), raw=False, grouping=GROUPINGS[context])

    return _pairs(ours, duckdb_averages.stored(trace_dir, context))


def of_ranks(trace_dir: str, ranks: int, raw: bool) -> dict[str, Pairs]:
    """(ours, DuckDB's) of the exact averages of each rank of a capture: one trace under so many names.

    `cpu`: DuckDB with one thread. `clock`: by the clock, DuckDB with as many threads as we have, one for each core.
    """
    folders = [_named_anew(Path(trace_dir), rank) for rank in range(ranks)]
    capture = Captured(folders)
    asked = {"group_by": "", "group_by_input_shape": False, "group_by_stack_n": 0, "with_backward": False, "raw": raw}

    def ours() -> object:
        return top_of_capture(capture, by="rank", limit=20, sort_by="self_cpu_time_total", **asked)

    files = [str(one / "segment-*.parquet") for one in folders]
    together = duckdb_averages.of_files(files, len(os.sched_getaffinity(0)))
    return {
        "cpu": _pairs(ours, duckdb_averages.of_files(files), times=2),
        "clock": _pairs(ours, together, times=4, clock=time.perf_counter),
    }


def _named_anew(trace: Path, rank: int) -> Path:
    folder = trace.parent / f"{trace.name}-rank{rank}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in trace.iterdir():
        if file.name != META_FILE:
            os.link(file, folder / file.name)
    meta = read_meta(trace)
    meta.rank, meta.trace = rank, folder.name
    (folder / META_FILE).write_bytes(encode_json(meta))
    return folder


def columns(trace_dir: str) -> dict[str, Pairs]:
    """(ours, DuckDB's) of columns in memory: torch's view rules and the groups, and the groups alone."""
    table = TraceReader(Path(trace_dir)).read(columns_for(False, Grouping()), args=False)
    calls = view.torch_calls(table)
    peer = duckdb_averages.columns(_as_arrow(table, calls))
    return {
        "rules": _pairs(lambda: averages(table), peer),
        "groups": _pairs(lambda: averages(table, calls=calls), peer),
    }


def _as_arrow(table: EventTable, calls: view.CallColumns) -> pa.Table:
    names = pa.DictionaryArray.from_arrays(pa.array(np.ascontiguousarray(calls.name)), calls.names)
    values = {"cpu": calls.cpu, "self_cpu": calls.self_cpu, "device": calls.device, "self_device": calls.self_device}
    return pa.table(
        {
            "name": names,
            "device_type": calls.device_type,
            "annotation": rules.is_annotation(table.column("kind")),
            "counted": calls.counted,
            **values,
        }
    )


def _pairs(
    ours: Callable[[], Any],
    peer: Callable[[], Any],
    times: int = PAIRS,
    clock: Callable[[], float] = time.process_time,
) -> Pairs:
    return [(_lasted(ours, clock), _lasted(peer, clock)) for _ in range(times + 1)][1:]


def _lasted(work: Callable[[], Any], clock: Callable[[], float]) -> float:
    begin = clock()
    work()
    return clock() - begin
