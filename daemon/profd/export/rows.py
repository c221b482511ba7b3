"""The rows of an export: all of a trace, or what a window and a minimum duration leave of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

import numpy as np

from profd.events import NO_END, ArgColumn, Dictionary, EventTable, Kind
from profd.query.part import numbers_of
from profd.segments.columns import LIST_ARG
from profd.segments.reader import TraceReader, Window


def tables(
    reader: TraceReader, columns: Collection[str] | None, window: Window | None, min_duration_ns: int = 0
) -> Iterator[EventTable]:
    """Tables in row order with all arguments; none is empty. `columns` None: all.

    `columns["row"]` numbers the rows where anything is left out. Counters and
    events whose end was not seen are never too short.
    """
    wanted = columns if columns is None else {*columns, "end", "kind"}
    for table in reader.iterate(wanted, window=window):
        kept = _long(table, min_duration_ns) if min_duration_ns else table
        if len(kept):
            yield kept


def without_lists(table: EventTable, words: Dictionary) -> EventTable:
    """The table with its list columns as arguments of JSON text, where formats have no lists; codes of `words`."""
    for (key, kind), arg in list(table.args.items()):
        if kind != LIST_ARG:
            continue
        del table.args[key, kind]
        rows, first = np.unique(arg.rows, return_index=True)
        texts = [json.dumps(values.tolist()) for values in np.split(arg.values, first[1:])] if len(rows) else []
        table.args[key, "json"] = ArgColumn("json", rows, np.array(words.codes(texts), dtype=np.int32), words)
    return table


def _long(table: EventTable, min_duration_ns: int) -> EventTable:
    start, end = table.columns["start"], table.column("end")
    long = (end == NO_END) | (end - start >= min_duration_ns)
    kept = np.flatnonzero(long | (table.column("kind") == Kind.COUNTER))
    rows = numbers_of(table)[kept]
    cut = table.take(kept)
    cut.columns["row"] = rows
    return cut
