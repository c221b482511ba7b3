"""Reads a trace directory back into EventTables, whole or piece by piece.

Runs in workers and offline. Codes are consistent over everything one reader
returns: it owns the dictionaries, and they grow as segments are read. Arrays
may be read-only views of Arrow memory: copy before writing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profd.events import NO_END, Dictionary, EventTable, Flows, Tracks
from profd.store.columns import decode_codes
from profd.store.join import join
from profd.store.late import LatePatches
from profd.store.meta import FLOWS_FILE, LATE_FILE, SegmentInfo, TraceMeta, read_meta
from profd.store.segment import Args, Codes, SegmentFile, Window, open_parquet, reading
from profd.store.side_files import FLOW_DICTIONARIES, FLOW_SCHEMA

__all__ = ["Args", "TraceReader", "Window"]

Array = npt.NDArray[Any]
Choose = Callable[[SegmentFile], list[list[int]]]  # runs of neighbouring row groups

# Needed to place rows in a window, whatever columns are asked for.
_WINDOW_COLUMNS: Final = ("start", "end")
_NO_ROWS: Final = np.empty(0, dtype=np.int64)


class TraceReader:
    """One stored trace. Opening reads `meta.json` only.

    Raises NotFound when the directory is no trace (any more), BadTrace naming
    the file when something in it is damaged.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.meta: TraceMeta = read_meta(directory)
        self._codes = Codes()

    def __len__(self) -> int:
        return self.meta.events

    @property
    def dictionaries(self) -> dict[str, Dictionary]:
        """The strings met so far, shared by all tables of this reader."""
        return self._codes.columns

    @property
    def segments(self) -> list[SegmentInfo]:
        """The segments in order; see `SegmentInfo`."""
        return self.meta.segments

    @property
    def tracks(self) -> Tracks:
        """Processes and threads, by track number."""
        return self.meta.tracks

    def read(
        self,
        columns: Collection[str] | None = None,
        *,
        segments: Iterable[int] | None = None,
        window: Window | None = None,
        args: Args = True,
    ) -> EventTable:
        """One table of everything asked for; see `iterate` for bounded memory.

        Without a window rows are contiguous over the segments read, numbered
        from `first_row`. With one, `columns["row"]` holds their numbers.
        """
        tables = list(self.iterate(columns, segments=segments, window=window, args=args))
        return join(tables, self.dictionaries)

    def iterate(
        self,
        columns: Collection[str] | None = None,
        *,
        segments: Iterable[int] | None = None,
        window: Window | None = None,
        args: Args = True,
    ) -> Iterator[EventTable]:
        """Yield tables in row order, at most a segment each, late patches applied.

        Without a window: one per segment. With one: its rows only, numbered by
        `columns["row"]`. `columns` None: all. `start` always comes along; a
        column that a table does not carry is absent in all its rows. In the
        window [from, to) is what starts before `to` and ends after `from`, or
        starts at it; an event whose end was not seen lasts to the end of the trace.
        """
        for number in range(len(self.segments)) if segments is None else segments:
            info = self.segments[number]
            if window is None:
                yield from self._tables(info, SegmentFile.everything, columns, args)
            elif _meets(info, window):
                wanted = columns if columns is None else {*columns, *_WINDOW_COLUMNS}
                for table in self._tables(info, lambda file: file.in_window(window, self._late_ends), wanted, args):
                    cut = _cut(table, window)
                    if len(cut):
                        yield cut

    def rows(self, rows: Array, columns: Collection[str] | None = None, *, args: Args = True) -> EventTable:
        """The given rows (trace-wide numbers, ascending), with `columns["row"]`. IndexError if there is none."""
        if len(rows) and (int(rows[0]) < 0 or int(rows[-1]) >= self.meta.events):
            raise IndexError(f"rows 0 to {self.meta.events - 1} exist")
        tables = []
        for info in self.segments:
            low, high = np.searchsorted(rows, (info.first_row, info.first_row + info.rows))
            if low < high:
                for table in self._tables(info, lambda file: file.holding(rows), columns, args):
                    inside = rows[(rows >= table.first_row) & (rows < table.first_row + len(table))]
                    tables.append(_numbered(table, inside - table.first_row))
        return join(tables, self.dictionaries)

    def flows(self) -> Flows:
        """All flow records, in the order they were written; codes are those of `dictionaries`."""
        if not self.meta.flows:
            return self._decode_flows(FLOW_SCHEMA.empty_table())
        path = self.directory / FLOWS_FILE
        with reading(path):
            table = open_parquet(path).read()
            if len(table) != self.meta.flows:
                raise LookupError(f"it has {len(table)} rows, {self.meta.flows} were written")
            return self._decode_flows(table)

    def _decode_flows(self, table: pa.Table) -> Flows:
        columns: dict[str, Array] = {}
        for name in Flows.__dataclass_fields__:
            dictionary = FLOW_DICTIONARIES.get(name)
            if dictionary is not None:
                known = self.dictionaries.setdefault(dictionary, Dictionary())
                columns[name] = decode_codes(table.column(name), known)
            else:
                columns[name] = table.column(name).to_numpy()
        return Flows(**columns)

    @cached_property
    def _late(self) -> LatePatches:
        if not self.meta.late:
            return LatePatches({})
        path = self.directory / LATE_FILE
        with reading(path):
            return LatePatches.of(open_parquet(path).read())

    @property
    def _late_ends(self) -> Array:
        return self._late.patches.get("end", (_NO_ROWS, _NO_ROWS))[0]

    def _tables(
        self,
        info: SegmentInfo,
        choose: Callable[[SegmentFile], list[list[int]]],
        columns: Collection[str] | None,
        args: Args,
    ) -> Iterator[EventTable]:
        late = self._late
        path = self.directory / info.file
        with reading(path):
            file = SegmentFile(path, info)
            runs = choose(file)
        for groups in runs:
            with reading(path):
                table = file.read(groups, columns, args, self._codes)
                late.apply(table, columns)
            yield table


def _meets(info: SegmentInfo, window: Window) -> bool:
    low, high = window
    return info.start_ns < high and (info.unended > 0 or info.end_ns >= low)


def _cut(table: EventTable, window: Window) -> EventTable:
    low, high = window
    start, end = table.columns["start"], table.column("end")
    inside = (start < high) & ((end > low) | (start >= low) | (end == NO_END))
    return _numbered(table, np.flatnonzero(inside))


def _numbered(table: EventTable, rows: Array) -> EventTable:
    cut = table.take(rows)
    cut.columns["row"] = rows.astype(np.int64) + table.first_row
    return cut
