"""Reads a trace directory back into EventTables, whole or segment by segment.

Runs in workers and offline. Codes are consistent over everything one reader
returns: it owns the dictionaries, and they grow as segments are read. Arrays
may be read-only views of Arrow memory: copy before writing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from profd.errors import BadTrace, NotFound
from profd.events import COLUMNS, NO_END, ArgColumn, Dictionary, EventTable, Flows, Tracks
from profd.store.columns import CODED_ARGS, decode_arg, decode_codes, decode_column
from profd.store.join import join
from profd.store.late import LatePatches
from profd.store.meta import FLOWS_FILE, LATE_FILE, SegmentInfo, TraceMeta, read_meta
from profd.store.writer import FLOW_DICTIONARIES, FLOW_SCHEMA

Array = npt.NDArray[Any]
Window = tuple[int, int]  # [from, to) in Unix ns
Args = bool | Collection[str]  # all, none, or those of these keys

# Needed to place rows in a window, whatever columns are asked for.
_WINDOW_COLUMNS: Final = ("start", "end")


# What pyarrow raises for files that are not as they were written; pages carry checksums, footers do not.
_DAMAGE: Final = (pa.ArrowException, OSError, ValueError, LookupError)


class TraceReader:
    """One stored trace. Opening reads `meta.json` only.

    Raises NotFound when the directory is no trace (any more), BadTrace naming
    the file when something in it is damaged.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.meta: TraceMeta = read_meta(directory)
        self.dictionaries: dict[str, Dictionary] = {}
        self._arg_dictionaries: dict[tuple[str, str], Dictionary] = {}

    def __len__(self) -> int:
        return self.meta.events

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
        """Yield one table per segment that has rows in the window, late patches applied.

        `columns` None: all. `start` always comes along; a column that a table
        does not carry is absent in all its rows. In the window [from, to) is
        what starts before `to` and ends after `from`, or at it if it takes no
        time; an event whose end was not seen lasts to the end of the trace.
        """
        for number in range(len(self.segments)) if segments is None else segments:
            info = self.segments[number]
            if window is not None and not _meets(info, window):
                continue
            wanted = columns if window is None or columns is None else {*columns, *_WINDOW_COLUMNS}
            table = self._segment(info, wanted, args)
            if window is not None:
                table = _cut(table, window)
            yield table

    def rows(self, rows: Array, columns: Collection[str] | None = None, *, args: Args = True) -> EventTable:
        """The given rows (trace-wide numbers, ascending), with `columns["row"]`. IndexError if there is none."""
        if len(rows) and (int(rows[0]) < 0 or int(rows[-1]) >= self.meta.events):
            raise IndexError(f"rows 0 to {self.meta.events - 1} exist")
        tables = []
        for info in self.segments:
            low, high = np.searchsorted(rows, (info.first_row, info.first_row + info.rows))
            if low < high:
                table = self._segment(info, columns, args)
                tables.append(_numbered(table, np.asarray(rows[low:high]) - info.first_row))
        return join(tables, self.dictionaries)

    def flows(self) -> Flows:
        """All flow records, in the order they were written; codes are those of `dictionaries`."""
        if not self.meta.flows:
            return self._decode_flows(FLOW_SCHEMA.empty_table())
        path = self.directory / FLOWS_FILE
        with _reading(path):
            table = _open(path).read()
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
        path = self.directory / LATE_FILE
        if not path.exists():
            return LatePatches({})
        with _reading(path):
            return LatePatches.of(_open(path).read())

    def _segment(self, info: SegmentInfo, columns: Collection[str] | None, args: Args) -> EventTable:
        path = self.directory / info.file
        with _reading(path):
            file = _open(path)
            if file.metadata.num_rows != info.rows:
                raise LookupError(f"it has {file.metadata.num_rows} rows, {info.rows} were written")
            schema = file.schema_arrow
            arg_keys = _arg_keys(schema)
            wanted = _wanted(schema, arg_keys, columns, args)
            return self._decode(file.read(columns=wanted), set(wanted), arg_keys, info, columns)

    def _decode(
        self,
        table: pa.Table,
        wanted: set[str],
        arg_keys: dict[str, tuple[str, str]],
        info: SegmentInfo,
        asked: Collection[str] | None,
    ) -> EventTable:
        columns: dict[str, Array] = {}
        args: dict[tuple[str, str], ArgColumn] = {}
        for name in table.column_names:
            if name not in wanted:  # Parquet reads "arg.a.b" along with "arg.a"
                continue
            key = arg_keys.get(name)
            if key is None:
                columns[name] = decode_column(COLUMNS[name], table.column(name), self.dictionaries)
                continue
            dictionary = self._arg_dictionaries.setdefault(key, Dictionary()) if key[1] in CODED_ARGS else None
            args[key] = decode_arg(key[1], table.column(name), dictionary)
        if "start" not in columns:
            raise LookupError("it has no column start")
        events = EventTable(columns, self.dictionaries, args, info.first_row)
        self._late.apply(events, asked)
        return events


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        if not path.parent.exists():
            raise NotFound(f"The trace {path.parent.name} has just been removed.") from error
        raise BadTrace(f"{path} is missing: the trace is damaged. Remove it with `profctl rm`.") from error
    except _DAMAGE as error:
        raise BadTrace(f"{path} is damaged: {error}. Remove the trace with `profctl rm`.") from error


def _open(path: Path) -> pq.ParquetFile:
    return pq.ParquetFile(path, page_checksum_verification=True)


def _arg_keys(schema: pa.Schema) -> dict[str, tuple[str, str]]:
    keys = {}
    for field in schema:
        metadata = field.metadata or {}
        if b"key" in metadata and b"type" in metadata:
            keys[field.name] = (metadata[b"key"].decode("utf-8", "surrogatepass"), metadata[b"type"].decode())
    return keys


def _wanted(
    schema: pa.Schema, arg_keys: dict[str, tuple[str, str]], columns: Collection[str] | None, args: Args
) -> list[str]:
    wanted = []
    for name in schema.names:
        key = arg_keys.get(name)
        if key is not None:
            take = args if isinstance(args, bool) else key[0] in args
        else:
            take = name in COLUMNS and (columns is None or name == "start" or name in columns)
        if take:
            wanted.append(name)
    return wanted


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
