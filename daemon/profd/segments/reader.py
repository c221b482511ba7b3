"""Reads a trace directory back into EventTables, whole or piece by piece.

Runs in workers and offline. Codes are consistent over everything one reader
returns: it owns the dictionaries, and they grow as segments are read. Arrays
may be read-only views of Arrow memory: copy before writing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from profd.events import NO_END, NO_ROW, Dictionary, EventTable, Flows, Tracks
from profd.segments.columns import decode_codes
from profd.segments.contract import DURATION
from profd.segments.gather import Gathering
from profd.segments.join import join
from profd.segments.late import LatePatches
from profd.segments.meta import FLOWS_FILE, LATE_FILE, SegmentInfo, TraceMeta, read_meta
from profd.segments.read_ahead import read_ahead
from profd.segments.rollups import NONE, Rollups
from profd.segments.row_group import RowGroup
from profd.segments.segment import (
    Args,
    Codes,
    Keep,
    Room,
    SegmentFile,
    Stretch,
    Window,
    open_parquet,
    own_room,
    reading,
)
from profd.segments.side_files import FLOW_DICTIONARIES, FLOW_SCHEMA, FLOW_TEXTS

__all__ = ["Args", "TraceReader", "Window"]

Array = npt.NDArray[Any]
Part = tuple[SegmentInfo, Callable[[SegmentFile], list[list[int]]]]  # a segment, and which runs of its row groups

# Needed to place rows in a window, whatever columns are asked for.
_WINDOW_COLUMNS: Final = ("start", "end")
_NO_ROWS: Final = np.empty(0, dtype=np.int64)


class TraceReader:
    """One stored trace. Opening reads `meta.json` only.

    Raises NotFound when the directory is no trace (any more), BadTrace naming
    the file when something in it is damaged.
    """

    def __init__(self, directory: Path, rollups: Rollups = NONE) -> None:
        self.directory = directory
        self.meta: TraceMeta = read_meta(directory)
        self.rollups = rollups.of(self.meta.trace, self.meta.events)
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

    def rows_at_most(self, window: Window | None) -> int:
        """So many rows, or fewer, have a part in a window; None: in the trace."""
        return sum(info.rows for info in self.segments if window is None or _meets(info, window))

    def segments_around(self, window: Window) -> list[int]:
        """The segments that have events with a part in a window, and the ones before and after each of them."""
        meeting = {number for number, info in enumerate(self.segments) if _meets(info, window)}
        around = {number + more for number in meeting for more in (-1, 0, 1)}
        return [number for number in range(len(self.segments)) if number in around]

    @property
    def tracks(self) -> Tracks:
        """Processes and threads, by track number."""
        return self.meta.tracks

    def has(self, column: str) -> bool:
        """Whether any event has a value in this column, or may have got one late."""
        if not self._of_before:
            return column in self.meta.columns or (column == "end" and DURATION in self.meta.columns)
        if column in self._late.patches:
            return True
        for info in self.segments:
            path = self.directory / info.file
            with reading(path):
                if column in open_parquet(path).schema_arrow.names:
                    return True
        return False

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
        if window is not None:
            return join(list(self.iterate(columns, segments=segments, window=window, args=args)), self.dictionaries)
        numbers = range(len(self.segments)) if segments is None else list(segments)
        parts = [(self.segments[number], SegmentFile.everything) for number in numbers]
        gathering = Gathering(sum(info.rows for info, _ in parts))
        for table in self._tables(parts, columns, args, gathering.room):
            gathering.take(table)
        return gathering.table(self.dictionaries)

    def iterate(
        self,
        columns: Collection[str] | None = None,
        *,
        segments: Iterable[int] | None = None,
        window: Window | None = None,
        args: Args = True,
    ) -> Generator[EventTable]:
        """Yield tables in row order, at most a segment each, late patches applied.

        Without a window: one per segment. With one: its rows only, numbered by
        `columns["row"]`. `columns` None: all. `start` always comes along; a
        column that a table does not carry is absent in all its rows. In the
        window [from, to) is what starts before `to` and ends after `from`, or
        starts at it; an event whose end was not seen lasts to the end of the trace.
        """
        infos = [self.segments[number] for number in (range(len(self.segments)) if segments is None else segments)]
        if window is None:
            yield from self._tables([(info, SegmentFile.everything) for info in infos], columns, args)
            return
        late_ends = self._late_ends
        parts = [(info, lambda file: file.in_window(window, late_ends)) for info in infos if _meets(info, window)]

        def inside(table: EventTable) -> Array:
            return _inside(table, window)

        wanted = columns if columns is None else {*columns, *_WINDOW_COLUMNS}
        for table in self._tables(parts, wanted, args, keep=inside):
            kept = inside(table)
            if len(kept):
                yield _numbered(table, kept)

    def begun(self, columns: Collection[str], window: Window) -> Generator[EventTable]:
        """Yield the events that begin in the window [from, to), in order and without arguments: views of what was read.

        Tables are as those of `iterate` are without a window.
        """
        low, high = window
        ends = [*(info.start_ns for info in self.segments[1:]), high]
        infos = [one for one, end in zip(self.segments, ends, strict=False) if one.start_ns < high and end >= low]
        parts = [(info, lambda file: file.beginning_in(window)) for info in infos]
        for table in self._tables(parts, columns, False):
            first, last = np.searchsorted(table.columns["start"], np.array(window, dtype=np.int64)).tolist()
            if first < last:
                yield table.stretch(first, last)

    def sampled(self, columns: Collection[str], segments: Iterable[int]) -> Generator[EventTable]:
        """Yield of each of these segments, in order, the row group in the middle, as `iterate` has tables.

        Of the trace's first segment it is the first one: what lasts through the trace begins there.
        """
        parts = [(self.segments[one], SegmentFile.middle if one else SegmentFile.first) for one in segments]
        yield from self._tables(parts, columns, False)

    def row_groups(self, names: Collection[str]) -> Iterator[RowGroup]:
        """Yield row groups in order, with those of these columns of the contract that have values.

        Of format 2, and as they are stored: whatever a reader hides is in them (`hides`).
        """
        self.rollups.before_events()
        for info in self.segments:
            path = self.directory / info.file
            with reading(path):
                groups = SegmentFile(path, info, self.meta).row_groups(names)
            while True:
                with reading(path):
                    group = next(groups, None)
                if group is None:
                    break
                yield group

    @property
    def hides(self) -> bool:
        """Whether tables are not what is stored."""
        return type(self)._shown is not TraceReader._shown

    def rows(self, rows: Array, columns: Collection[str] | None = None, *, args: Args = True) -> EventTable:
        """The given rows (trace-wide numbers, ascending), with `columns["row"]`. IndexError if there is none."""
        if len(rows) and (int(rows[0]) < 0 or int(rows[-1]) >= self.meta.events):
            raise IndexError(f"rows 0 to {self.meta.events - 1} exist")
        edges = [np.searchsorted(rows, (info.first_row, info.first_row + info.rows)) for info in self.segments]
        held = [info for info, (low, high) in zip(self.segments, edges, strict=True) if low < high]
        tables = []

        def asked(table: EventTable) -> Array:
            within: Array = rows[(rows >= table.first_row) & (rows < table.first_row + len(table))] - table.first_row
            return within

        parts = [(info, lambda file: file.holding(rows)) for info in held]
        for table in self._tables(parts, columns, args, keep=asked):
            tables.append(_numbered(table, asked(table)))
        return join(tables, self.dictionaries)

    def flows(self, categories: Collection[str] | None = None) -> Flows:
        """The flow records, of these categories or all, as written; codes are those of `dictionaries`."""
        if not self.meta.flows:
            return self._decode_flows(FLOW_SCHEMA.empty_table())
        self.rollups.before_events()
        path = self.directory / FLOWS_FILE
        with reading(path):
            table = open_parquet(path, () if self._of_before else FLOW_TEXTS).read()
            if len(table) != self.meta.flows:
                raise LookupError(f"it has {len(table)} rows, {self.meta.flows} were written")
            return self._decode_flows(table if categories is None else _of_categories(table, categories))

    def _decode_flows(self, table: pa.Table) -> Flows:
        columns: dict[str, Array] = {}
        for name in Flows.__dataclass_fields__:
            dictionary = FLOW_DICTIONARIES.get(name)
            if dictionary is not None:
                known = self.dictionaries.setdefault(dictionary, Dictionary())
                columns[name] = decode_codes(table.column(name), known, plain=self._of_before)
            else:
                columns[name] = _flow_numbers(table.column(name), name)
        return Flows(**columns)

    @property
    def _of_before(self) -> bool:
        return self.meta.format == 1

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

    def _needed(self, columns: Collection[str] | None) -> Collection[str] | None:
        """The columns that must be read for `_shown` to work where these columns are asked for."""
        return columns

    def _shown(self, table: EventTable) -> EventTable:
        """What a caller gets of a stored table: a reader that hides something overrides this, and it is hidden."""
        return table

    def _tables(
        self,
        parts: Sequence[Part],
        columns: Collection[str] | None,
        args: Args,
        room: Room = own_room,
        keep: Keep | None = None,
    ) -> Generator[EventTable]:
        """Every table that leaves a reader is made here; of several parts the next one is read while one is used."""
        self.rollups.before_events()
        late, wanted = self._late, self._needed(columns)
        several = self._stretches(parts, wanted, args)
        # A thread for a single part has nothing to do meanwhile.
        with contextlib.closing(read_ahead(several) if len(parts) > 1 else several) as stretches:
            for path, stretch in stretches:
                with reading(path):
                    table = stretch.decode(self._codes, room, None if self.meta.late else keep)
                    late.apply(table, wanted)
                yield self._shown(table)

    def _stretches(
        self, parts: Sequence[Part], columns: Collection[str] | None, args: Args
    ) -> Generator[tuple[Path, Stretch]]:
        """In a thread of its own: touches nothing that grows."""
        for info, choose in parts:
            path = self.directory / info.file
            with reading(path):
                file = SegmentFile(path, info, self.meta)
                runs = choose(file)
            for groups in runs:
                with reading(path):
                    stretch = file.load(groups, columns, args)
                yield path, stretch


def _flow_numbers(column: pa.ChunkedArray, name: str) -> Array:
    """As `Flows` has them: small numbers, -1 where there is none."""
    values: Array = column.fill_null(NO_ROW).to_numpy() if column.null_count else column.to_numpy()
    return values.astype(np.uint8, copy=False) if name == "phase" else values


def _of_categories(flows: pa.Table, categories: Collection[str]) -> pa.Table:
    """Ids are strings, nearly all of them different: those of other categories never become Python's."""
    kept = flows.filter(pc.is_in(flows.column("category"), pa.array(sorted(categories), pa.string())))
    ids = pa.chunked_array([chunk.dictionary_decode() for chunk in kept.column("id").chunks], pa.string())
    return kept.set_column(kept.schema.get_field_index("id"), "id", ids)


def _meets(info: SegmentInfo, window: Window) -> bool:
    low, high = window
    return info.start_ns < high and (info.unended > 0 or info.end_ns >= low)


def _inside(table: EventTable, window: Window) -> Array:
    low, high = window
    start, end = table.columns["start"], table.column("end")
    return np.flatnonzero((start < high) & ((end > low) | (start >= low) | (end == NO_END)))


def _numbered(table: EventTable, rows: Array) -> EventTable:
    cut = table.take(rows)
    cut.columns["row"] = rows.astype(np.int64) + table.first_row
    return cut
