"""A trace of any size a stretch at a time, each with all that is above its calls: their paths are whole."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import numpy as np

from profd.events import NO_ROW, EventTable
from profd.events.table import Array
from profd.query.part import places_of
from profd.segments.join import join
from profd.segments.meta import SegmentInfo
from profd.segments.reader import TraceReader

STRETCH_ROWS: Final = 1 << 21  # some 300 bytes each in a worker


def stretches(reader: TraceReader, columns: Collection[str], on: Array | None) -> Iterator[tuple[EventTable, Array]]:
    """(rows of a stretch and all rows above these, as a trace of their own; a flag for each: it is of the stretch).

    `columns` have `parent`, which counts in the table. `on`: a flag for each row of the trace; those without it are in
    no table, and above nothing. `columns["row"]` holds the rows of the trace. Memory: some tables of STRETCH_ROWS.
    """
    for numbers in _grouped(reader.segments):
        table = reader.read(columns, segments=numbers, args=False)
        first, last = table.first_row, table.first_row + len(table)
        kept = np.arange(len(table)) if on is None else np.flatnonzero(on[first:last])
        found = table if on is None else table.take(kept)
        found.columns["row"] = kept + first
        around = _above(reader, found, columns, on, (first, last))
        if around is not None:
            edges = np.searchsorted(around.columns["row"], (first, last))
            before, after = around.take(np.arange(edges[0])), around.take(np.arange(edges[1], len(around)))
            found = join([before, found, after], reader.dictionaries)
        row = found.columns["row"]
        found.columns["parent"] = places_of(row, found.column("parent"))
        yield EventTable(found.columns, found.dictionaries), (row >= first) & (row < last)


def _grouped(segments: Sequence[SegmentInfo]) -> Iterator[list[int]]:
    group: list[int] = []
    rows = 0
    for number, info in enumerate(segments):
        if group and rows + info.rows > STRETCH_ROWS:
            yield group
            group, rows = [], 0
        group.append(number)
        rows += info.rows
    if group:
        yield group


def _above(
    reader: TraceReader, table: EventTable, columns: Collection[str], on: Array | None, own: tuple[int, int]
) -> EventTable | None:
    """All rows above those of a table that are not its own, in order; None: there are none."""
    found: list[EventTable] = []
    known = wanted = _elsewhere(table, len(reader), on, own)
    while len(wanted):
        found.append(reader.rows(wanted, columns, args=False))
        wanted = np.setdiff1d(_elsewhere(found[-1], len(reader), on, own), known)
        known = np.union1d(known, wanted)
    if not found:
        return None
    together = join(found, reader.dictionaries)
    return together.take(np.argsort(together.columns["row"]))


def _elsewhere(table: EventTable, rows: int, on: Array | None, own: tuple[int, int]) -> Array:
    """The parents of these that are rows of the trace, but not among its own."""
    parent = table.column("parent")
    wanted = np.unique(parent[(parent != NO_ROW) & ((parent < own[0]) | (parent >= own[1]))])
    wanted = wanted[(wanted >= 0) & (wanted < rows)]
    return wanted if on is None else wanted[on[wanted]]
