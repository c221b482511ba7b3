"""Every event as it was recorded, with self time by strict interval nesting, a stretch at a time.

The stored tree replays stacks, where partial overlap nests and is clipped; here
it does not nest at all, so self times are worked out anew. Memory is bounded by
a segment and by what is open at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from profd import _engine
from profd.errors import Exhausted
from profd.events import NO_ROW, EventTable, Kind
from profd.events.table import Array
from profd.limits import QUERY_ROWS_MAX
from profd.query import rules
from profd.query.view import CallColumns, durations, nest
from profd.segments.join import join

NEVER_NESTS: Final = (Kind.OVERHEAD, Kind.TRACE, Kind.COUNTER)
RECORDED_COLUMNS = ("name", "kind", *rules.ASYNC_COLUMNS, "start", "end", "thread", "device_type")


def recorded_stretches(tables: Iterable[EventTable], rows: int) -> Iterator[tuple[EventTable, CallColumns]]:
    """Yield (a table, its calls) for tables in start order; sums over all of them are those of the trace.

    Rows that are open at the end of a stretch come again in the next one, not
    counted, so that what they enclose there is taken from their self time.
    `rows`: how many the tables have at most; with the last of them nothing waits any more.
    """
    seen: EventTable | None = None  # rows counted before that may still enclose others
    waiting: EventTable | None = None  # rows that start together with what may come next
    left = rows
    for table in tables:
        batch = _joined(waiting, table)
        left -= len(table)
        if not len(batch):
            continue
        start = batch.columns["start"]
        # Of equal starts the longer encloses the shorter: they must be seen together.
        ready = int(np.searchsorted(start, start[-1])) if left else len(batch)
        waiting = _rows(batch, slice(ready, None))
        if len(waiting) > QUERY_ROWS_MAX:
            raise Exhausted(f"more than {QUERY_ROWS_MAX:,} events of the trace start at the same time")
        if ready:
            stretch = _joined(seen, _rows(batch, slice(ready)))
            fresh = len(stretch) - ready
            yield stretch, _calls(stretch, fresh)
            seen = _rows(stretch, np.flatnonzero(_open_at(stretch, int(start[-1])))) if left else None
    if waiting is not None and len(waiting):
        stretch = _joined(seen, waiting)
        yield stretch, _calls(stretch, len(stretch) - len(waiting))


def recorded_calls(table: EventTable) -> CallColumns:
    """The calls of a whole trace at once: a row of the calls for each of the table."""
    return _calls(table, 0)


def _joined(first: EventTable | None, second: EventTable) -> EventTable:
    return second if first is None or not len(first) else join([first, second], second.dictionaries)


def _rows(table: EventTable, rows: Array | slice) -> EventTable:
    return EventTable({name: values[rows] for name, values in table.columns.items()}, table.dictionaries)


def _open_at(table: EventTable, time: int) -> Array:
    reaching: Array = _nests(table) & (table.column("end") > time)
    return reaching


def _nests(table: EventTable) -> Array:
    apart = rules.is_kind(table.column("kind"), *NEVER_NESTS)
    nests: Array = rules.is_cpu(table.column("device_type")) & ~apart & ~rules.is_async(table)
    return nests


def _calls(table: EventTable, fresh: int) -> CallColumns:
    """Calls of a stretch whose rows before `fresh` were counted in an earlier one."""
    cpu = rules.is_cpu(table.column("device_type"))
    lasting = durations(table)
    parent, own = nest(table, _nests(table))
    if fresh:
        lasting[:fresh] = 0  # counted, and taken from their parents, before
        inner = np.flatnonzero(parent != NO_ROW)
        own = lasting - _engine.sum_by(parent[inner], len(table), lasting[inner])
    on_cpu, on_device = lasting * cpu, lasting * ~cpu
    return CallColumns(
        counted=np.arange(len(table)) >= fresh,
        device_type=table.column("device_type"),
        name=table.column("name"),
        names=rules.names_of(table),
        cpu=on_cpu,
        self_cpu=own * cpu,
        device=on_device,
        self_device=on_device,
        parent=parent,
    )
