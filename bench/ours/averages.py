"""Key averages beside DuckDB on the same rows, turn about in one process: CPU seconds of pairs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from profd.events import EventTable
from profd.query import rules, view
from profd.query.averages import Grouping, averages, averages_of_trace, columns_for
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


def columns(trace_dir: str) -> dict[str, Pairs]:
    """(ours, DuckDB's) of columns in memory: torch's view rules and the groups, and the groups alone."""
    table = TraceReader(Path(trace_dir)).read(columns_for(False, Grouping()), args=False)
    calls = view.torch_calls(table)
    peer = duckdb_averages.columns(_as_arrow(table, calls))
    return {
        "rules": _pairs(lambda: averages(table), peer),
        "groups": _pairs(lambda: averages(table, calls=calls), peer),
    }


def _as_arrow(table: EventTable, calls: view.Calls) -> pa.Table:
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


def _pairs(ours: Callable[[], Any], peer: Callable[[], Any]) -> Pairs:
    return [(_cpu(ours), _cpu(peer)) for _ in range(PAIRS + 1)][1:]


def _cpu(work: Callable[[], Any]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin
