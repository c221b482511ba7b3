"""One segment file: which of its row groups a question needs, and their rows as an EventTable."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from profd.errors import BadTrace, NotFound
from profd.events import COLUMNS, NO_END, ArgColumn, Dictionary, EventTable
from profd.segments.columns import CODED_ARGS, LIST_ARG, decode_arg, decode_column
from profd.segments.contract import ARGS, CORE_ARGS, DURATION, FIELDS, TEXTS
from profd.segments.json_args import ArgsDecoder, decode_ints
from profd.segments.meta import REMEDY, SegmentInfo, TraceMeta, named
from profd.segments.row_group import RowGroup

Array = npt.NDArray[Any]
Room = Callable[[str, int], Array]  # (column, rows) -> where they are decoded to
Window = tuple[int, int]  # [from, to) in Unix ns
Args = bool | Collection[str]  # all, none, or those of these keys
Keep = Callable[[EventTable], Array]  # the rows of a table (from 0, ascending) that the reader's caller gets

# What pyarrow raises for files that are not as they were written; pages carry checksums, footers do not.
_DAMAGE: Final = (pa.ArrowException, OSError, ValueError, LookupError)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Any failure of a damaged file becomes BadTrace; a trace that has gone meanwhile, NotFound."""
    try:
        yield
    except FileNotFoundError as error:
        if not path.parent.exists():
            raise NotFound(f"The trace {path.parent.name} has just been removed.") from error
        raise BadTrace(f"{named(path)} is missing: the trace is damaged. {REMEDY}") from error
    except _DAMAGE as error:
        raise BadTrace(f"{named(path)} is damaged: {error}. {REMEDY}") from error


def open_parquet(path: Path, texts: Sequence[str] = ()) -> pq.ParquetFile:
    """A file of ours, its checksums verified as it is read, and `texts` as codes. Raises what `reading` translates."""
    return pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=list(texts) or None)


@dataclass(slots=True)
class Codes:
    """The dictionaries of one reader: codes are consistent over all it returns."""

    columns: dict[str, Dictionary] = field(default_factory=dict)
    args: dict[tuple[str, str], Dictionary] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows as they were read, not yet decoded: any thread may make one."""

    table: pa.Table
    keys: dict[str, tuple[str, str] | None]  # column -> what argument it is, None: a column of the schema
    first_row: int
    args: Args
    of_before: bool = False  # format 1

    def decode(self, codes: Codes, room: Room, keep: Keep | None = None) -> EventTable:
        """The rows, in arrays that `room` gives. Raises what `reading` translates.

        Of rows that `keep` leaves out the arguments may be missing.
        """
        columns: dict[str, Array] = {}
        sparse: dict[tuple[str, str], ArgColumn] = {}
        for name, key in self.keys.items():
            column = self.table.column(name)
            if key is not None and key[1] == LIST_ARG and not self.of_before:
                sparse[key] = decode_ints(column)
            elif key is not None:
                dictionary = codes.args.setdefault(key, Dictionary()) if key[1] in CODED_ARGS else None
                sparse[key] = decode_arg(key[1], column, dictionary, plain=self.of_before)
            elif name != ARGS:
                known = name if self.of_before else FIELDS[name].column or name
                place = room(known, len(column))
                columns[known] = decode_column(COLUMNS[known], column, codes.columns, place, plain=self.of_before)
        if "start" not in columns:
            raise LookupError("it has no column start")
        if DURATION in self.keys:
            _end(columns["start"], columns["end"], unended=bool(self.table.column(DURATION).null_count))
        table = EventTable(columns, codes.columns, sparse, self.first_row)
        if ARGS in self.keys:
            wanted = None if isinstance(self.args, bool) else self.args
            decoder = ArgsDecoder(wanted, codes.args)
            sparse.update(decoder.decode(self.table.column(ARGS), None if keep is None else keep(table)))
        return table


def _end(start: Array, durations: Array, *, unended: bool) -> None:
    """Durations to ends, in place. `unended`: some are absent."""
    absent = np.flatnonzero(durations == NO_END) if unended else None
    durations += start
    if absent is not None:
        durations[absent] = NO_END


def own_room(name: str, rows: int) -> Array:
    """An array of its own for each column."""
    return np.empty(rows, dtype=COLUMNS[name].dtype)


class SegmentFile:
    """An open segment. Raises what `reading` translates."""

    def __init__(self, path: Path, info: SegmentInfo, meta: TraceMeta) -> None:
        self._info = info
        self._of_before = meta.format == 1
        self._file = open_parquet(path, () if self._of_before else TEXTS)
        self._schema = self._file.schema_arrow
        self._metadata = self._file.metadata
        self._arg_keys = _arg_keys(self._schema) if self._of_before else _KEYS_OF_COLUMNS
        self._held = set(self._schema.names) if self._of_before else {*meta.columns, "start"}
        self._has_json = {key for key, kind in meta.args if (key, kind) not in CORE_ARGS}
        if self._metadata.num_rows != info.rows:
            raise LookupError(f"it has {self._metadata.num_rows} rows, {info.rows} were written")

    def in_window(self, window: Window, late_ends: Array) -> list[list[int]]:
        """Runs of neighbouring row groups that may have rows in the window.

        `late_ends`: rows of the trace whose end the file does not know.
        """

        def needed(group: int, first: int, rows: int) -> bool:
            low, high = window
            start = self._statistics(group, "start")
            if not self._of_before:
                until = self._group_end(group)
                return bool((start is None or start.min < high) and (until is None or until >= low))
            end = self._statistics(group, "end")
            if start is None or end is None or end.null_count or not end.has_min_max:
                return start is None or start.min < high
            late = np.searchsorted(late_ends, first + rows) > np.searchsorted(late_ends, first)
            return bool(start.min < high and (late or max(end.max, start.max) >= low))

        return self._runs(needed)

    def holding(self, wanted: Array) -> list[list[int]]:
        """Runs of neighbouring row groups that hold these rows (trace-wide numbers, ascending)."""

        def needed(_: int, first: int, rows: int) -> bool:
            return bool(np.searchsorted(wanted, first + rows) > np.searchsorted(wanted, first))

        return self._runs(needed)

    def everything(self) -> list[list[int]]:
        """All row groups as one run."""
        return [list(range(self._metadata.num_row_groups))]

    def load(self, groups: list[int], columns: Collection[str] | None, args: Args) -> Stretch:
        """The rows of neighbouring groups. `columns` None: all; `start` comes along always."""
        wanted = self._wanted(columns, args)
        table = self._file.read_row_groups(groups, columns=wanted)
        keys = {name: self._arg_keys.get(name) for name in wanted}  # Parquet reads "arg.a.b" along with "arg.a"
        return Stretch(table, keys, self._first_row(groups[0]), args, self._of_before)

    def row_groups(self, names: Collection[str]) -> Iterator[RowGroup]:
        """Each row group, with those of these columns (of format 2, as the contract names them) that have values."""
        wanted = [name for name in names if name in self._held]
        for group in range(self._metadata.num_row_groups):
            yield RowGroup(self._file.read_row_group(group, columns=wanted, use_threads=False))

    def _runs(self, needed: Callable[[int, int, int], bool]) -> list[list[int]]:
        chosen = []
        first = self._info.first_row
        for group in range(self._metadata.num_row_groups):
            rows = self._metadata.row_group(group).num_rows
            if needed(group, first, rows):
                chosen.append(group)
            first += rows
        neighbours = groupby(enumerate(chosen), key=lambda pair: pair[1] - pair[0])
        return [[group for _, group in run] for _, run in neighbours]

    def _first_row(self, group: int) -> int:
        before = (self._metadata.row_group(earlier).num_rows for earlier in range(group))
        return self._info.first_row + sum(map(int, before))

    def _statistics(self, group: int, column: str) -> Any:
        if column not in self._schema.names:
            return None
        return self._metadata.row_group(group).column(self._schema.names.index(column)).statistics

    def _group_end(self, group: int) -> int | None:
        ends = self._info.groups_end_ns
        return ends[group] if len(ends) == self._metadata.num_row_groups else None

    def _wanted(self, columns: Collection[str] | None, args: Args) -> list[str]:
        return [name for name in self._schema.names if name in self._held and self._is_wanted(name, columns, args)]

    def _is_wanted(self, name: str, columns: Collection[str] | None, args: Args) -> bool:
        key = self._arg_keys.get(name)
        if key is not None:
            return args if isinstance(args, bool) else key[0] in args
        if not self._of_before:
            if name == ARGS:
                return args if isinstance(args, bool) else not self._has_json.isdisjoint(args)
            name = FIELDS[name].column or name if name in FIELDS else ""
        return name in COLUMNS and (columns is None or name == "start" or name in columns)


_KEYS_OF_COLUMNS: Final = {name: field.arg for name, field in FIELDS.items() if field.arg is not None}


def _arg_keys(schema: pa.Schema) -> dict[str, tuple[str, str]]:
    keys = {}
    for column in schema:
        metadata = column.metadata or {}
        if b"key" in metadata and b"type" in metadata:
            keys[column.name] = (metadata[b"key"].decode("utf-8", "surrogatepass"), metadata[b"type"].decode())
    return keys
