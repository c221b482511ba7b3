"""The call tree with all calls of one path together: `profctl tree --merged` (docs/json.md)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from profd import _engine
from profd.derive.modules import MODULE_FRAME
from profd.events import NO_ROW, EventTable, Kind
from profd.events.table import Array
from profd.limits import MERGED_PATHS_MAX
from profd.query import rules
from profd.query.hottest import hottest
from profd.query.merged_paths import PathsOfStretches, PathTimes, as_json
from profd.query.own import own_threads
from profd.query.part import Part, chosen_rows, of_job, part_of, read_part
from profd.query.stretches import stretches
from profd.segments.reader import TraceReader
from profd.segments.rollups import kept_value
from profd.tree.build import same_threads

MERGED_COLUMNS: Final = (
    *("name", "kind", *rules.ASYNC_COLUMNS),
    *("start", "end", "thread", "device_type", "parent"),
)
_KEYS: Final = {"window_ns", "calls", "paths", "left_out", "own_threads", "nodes"}
CALLS, MODULES, OPERATORS, SAMPLES = OF = ("calls", "modules", "operators", "samples")


def merged_tree(trace: TraceReader, *, limit: int, of: str = CALLS, **part: Any) -> dict[str, Any]:
    """The paths with most time, at most `limit` of them (0, or more than MERGED_PATHS_MAX: that many).

    `of`: one of OF; others than CALLS leave calls out, and what these called stands below the nearest that is kept.
    `part`: arguments of `part_of`; without a thread, those of profd are left out. Exhausted where the part does not
    fit into a worker.
    """
    chosen = of_job(trace, part_of(trace, **part))
    most = min(limit or MERGED_PATHS_MAX, MERGED_PATHS_MAX)
    if not chosen.is_whole or most < MERGED_PATHS_MAX:
        return _worked_out(trace, chosen, of, most)
    return kept_value(trace.rollups, f"merged-{of}", _is_answer, lambda: _worked_out(trace, chosen, of, most))


def _is_answer(kept: Any) -> bool:
    """As far as a page counts on it."""
    return isinstance(kept, dict) and kept.keys() == _KEYS and isinstance(kept["nodes"], list)


def _worked_out(trace: TraceReader, chosen: Part, of: str, most: int) -> dict[str, Any]:
    paths, names, calls = _paths(trace, chosen, of)
    window = chosen.lasts_ns(trace)
    shown = hottest(paths.above, np.maximum(paths.total, paths.device), most)
    return {
        "window_ns": window,
        "calls": calls,
        "paths": len(paths),
        "left_out": len(paths) - len(shown),
        "own_threads": own_threads(trace.meta, chosen.own),
        "nodes": as_json(paths, names, shown, window),
    }


def _paths(trace: TraceReader, part: Part, of: str) -> tuple[PathTimes, list[str], int]:
    """(paths, their names, how many calls they are of). Without a window the trace may be of any size."""
    until = until_of(trace, part)
    if part.window is not None:
        table, threads = calls_of(trace, part, of)
        return *PathTimes.of(table, threads, until), len(table)
    found, calls = PathsOfStretches(), 0
    for table, own in stretches(trace, MERGED_COLUMNS, chosen_rows(trace, part)):
        rows = _calls_among(table, of)
        shown = _of_rows(table, of, rows)
        counted = None if own.all() else own[rows]
        found.add(*PathTimes.of(shown, _threads_of(trace, shown), until, counted))
        calls += len(rows) if counted is None else int(np.count_nonzero(counted))
    return *found.together(), calls


def calls_of(reader: TraceReader, part: Part, of: str = CALLS) -> tuple[EventTable, Array]:
    """(the calls and device work of a part, the thread of each): no marks, and nothing that lies beside the stacks."""
    table = read_part(reader, part, MERGED_COLUMNS)
    shown = _of_rows(table, of, _calls_among(table, of))
    return shown, _threads_of(reader, shown)


def _calls_among(table: EventTable, of: str) -> Array:
    kinds = table.column("kind")
    apart = rules.is_kind(kinds, Kind.GPU_USER_ANNOTATION) | rules.is_async(table)
    wanted = rules.is_work(kinds) & ~apart
    return np.flatnonzero(wanted if of == CALLS else wanted & _is_of(table, of))


def _of_rows(table: EventTable, of: str, rows: Array) -> EventTable:
    """These rows as a trace of their own."""
    parent = table.column("parent")
    place = np.full(len(table) + 1, NO_ROW, dtype=np.int64)  # the last answers for NO_ROW
    place[rows] = np.arange(len(rows))
    columns = {name: table.column(name)[rows] for name in ("name", "kind", "start", "end", "thread", "device_type")}
    columns["parent"] = place[_around(parent, place[:-1] != NO_ROW, rows) if of != CALLS else parent[rows]]
    return EventTable(columns, table.dictionaries)


def _threads_of(reader: TraceReader, table: EventTable) -> Array:
    thread, same = table.column("thread"), same_threads(reader.tracks)
    return thread if same is None else same[thread]


def _around(parent: Array, wanted: Array, rows: Array) -> Array:
    return _engine.nearest_above(np.ascontiguousarray(parent), wanted.view(np.uint8), rows)


def _is_of(table: EventTable, of: str) -> Array:
    """Which rows are modules, operators or samples. Work of devices stands below the one that launched it."""
    kinds = table.column("kind")
    work = ~rules.is_cpu(table.column("device_type"))
    if of == SAMPLES:
        return rules.is_kind(kinds, Kind.SAMPLE)
    if of == OPERATORS:
        return rules.is_kind(kinds, Kind.CPU_OP) | work
    module = rules.Named(lambda name: name.startswith(MODULE_FRAME)).of(table)
    found: Array = rules.is_kind(kinds, Kind.PYTHON_FUNCTION) & module | work
    return found


def until_of(reader: TraceReader, part: Part) -> int:
    """When what has no end of its own ends: with the part."""
    end = reader.meta.end_ns or 0
    return end if part.window is None else min(end, part.window[1])
