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
from profd.segments.pages import STRANGE, Pages, pages_of
from profd.segments.row_group import RowGroup
from profd.segments.text import words_of

Array = npt.NDArray[Any]
Room = Callable[[str, int], Array]  # (column, rows) -> where they are decoded to
Window = tuple[int, int]  # [from, to) in Unix ns
Args = bool | Collection[str]  # all, none, or those of these keys
Keep = Callable[[EventTable], Array]  # the rows of a table (from 0, ascending) that the reader's caller gets

# What pyarrow raises for files that are not as they were written; pages carry checksums, footers do not.
_DAMAGE: Final = (pa.ArrowException, OSError, ValueError, LookupError)


_PHYSICAL: Final = {pa.int32(): "INT32", pa.int64(): "INT64", pa.string(): "BYTE_ARRAY"}
_NOTHING: Final = pa.table({})


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

    rows: int
    table: pa.Table  # of columns that Arrow reads
    pages: dict[str, list[Pages]]  # of all others, for each row group
    by_arrow: Callable[[str], pa.ChunkedArray]  # a column whose pages turn out to be strange
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
        unended = False
        for name, key in self.keys.items():
            if name in self.pages:
                known = FIELDS[name].column or name
                columns[known] = room(known, self.rows)
                complete = self._unpack(name, columns[known], codes)
                unended |= name == DURATION and not complete
                continue
            column = self.table.column(name)
            unended |= name == DURATION and column.null_count > 0
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
            _end(columns["start"], columns["end"], unended=unended)
        table = EventTable(columns, codes.columns, sparse, self.first_row)
        if ARGS in self.keys:
            wanted = None if isinstance(self.args, bool) else self.args
            decoder = ArgsDecoder(wanted, codes.args)
            sparse.update(decoder.decode(self.table.column(ARGS), None if keep is None else keep(table)))
        return table

    def _unpack(self, name: str, out: Array, codes: Codes) -> bool:
        """Decode a column from its pages. Whether all rows have a value."""
        spec = COLUMNS[FIELDS[name].column or name]
        at = valid = 0
        try:
            for group in self.pages[name]:
                part = out[at : at + group.rows]
                if spec.dictionary is None:
                    valid += group.numbers(part, int(spec.absent or 0))
                else:
                    dictionary = codes.columns.setdefault(spec.dictionary, Dictionary())
                    place = dictionary.codes(words_of(group.words(), plain=False))
                    valid += group.codes(part, np.array(place, dtype=np.int64))
                at += group.rows
        except STRANGE:
            column = self.by_arrow(name)
            decode_column(spec, column, codes.columns, out)
            return not column.null_count
        return valid == len(out)


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
        self._bytes = pa.OSFile(str(path))
        self._schema = self._file.schema_arrow
        self._numbers = {name: number for number, name in enumerate(self._schema.names)}
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

    def beginning_in(self, window: Window) -> list[list[int]]:
        """Runs of neighbouring row groups that may have rows that begin in the window."""

        def needed(group: int, first: int, rows: int) -> bool:
            start = self._statistics(group, "start")
            return start is None or bool(start.min < window[1] and start.max >= window[0])

        return self._runs(needed)

    def holding(self, wanted: Array) -> list[list[int]]:
        """Runs of neighbouring row groups that hold these rows (trace-wide numbers, ascending)."""

        def needed(_: int, first: int, rows: int) -> bool:
            return bool(np.searchsorted(wanted, first + rows) > np.searchsorted(wanted, first))

        return self._runs(needed)

    def everything(self) -> list[list[int]]:
        """All row groups as one run."""
        return [list(range(self._metadata.num_row_groups))]

    def middle(self) -> list[list[int]]:
        """The row group in the middle."""
        return [[self._metadata.num_row_groups // 2]]

    def first(self) -> list[list[int]]:
        """The first row group."""
        return [[0]]

    def load(self, groups: list[int], columns: Collection[str] | None, args: Args) -> Stretch:
        """The rows of neighbouring groups. `columns` None: all; `start` comes along always."""
        wanted = self._wanted(columns, args)
        pages = {name: found for name in wanted if (found := self._pages(name, groups))}
        others = [name for name in wanted if name not in pages]
        keys = {name: self._arg_keys.get(name) for name in wanted}  # Parquet reads "arg.a.b" along with "arg.a"
        return Stretch(
            self._rows(groups),
            self._by_arrow(groups, others) if others else _NOTHING,
            pages,
            lambda name: self._by_arrow(groups, [name]).column(name),
            keys,
            self._first_row(groups[0]),
            args,
            self._of_before,
        )

    def row_groups(self, names: Collection[str]) -> Iterator[RowGroup]:
        """Each row group, with those of these columns (of format 2, as the contract names them) that have values."""
        held = self._held.intersection(names)
        for group in range(self._metadata.num_row_groups):

            def pages_of(name: str, group: int = group) -> Pages | None:
                found = self._pages(name, [group])
                return found[0] if found else None

            def by_arrow(name: str, group: int = group) -> pa.ChunkedArray:
                return self._by_arrow([group], [name]).column(name)

            yield RowGroup(self._rows([group]), frozenset(held), pages_of, by_arrow)

    def _rows(self, groups: list[int]) -> int:
        return sum(self._metadata.row_group(group).num_rows for group in groups)

    def _by_arrow(self, groups: list[int], names: list[str]) -> pa.Table:
        """Columns with all their rows: Arrow passes over pages of a kind that it does not know, and says nothing."""
        table = self._file.read_row_groups(groups, columns=names, use_threads=len(names) > 1)
        if len(table) != self._rows(groups):
            raise LookupError(f"{', '.join(names)} has {len(table)} rows, {self._rows(groups)} were written")
        return table

    def _pages(self, name: str, groups: list[int]) -> list[Pages]:
        """Of a column that is as our writer writes it; empty: of another."""
        if self._of_before or FIELDS[name].column is None:
            return []
        number = self._numbers[name]
        column = self._metadata.schema.column(number)
        try:
            if column.physical_type != _PHYSICAL.get(FIELDS[name].type) or column.max_repetition_level:
                return []
            chunks = [self._metadata.row_group(group).column(number) for group in groups]
            return [pages_of(self._bytes, chunk, column.max_definition_level) for chunk in chunks]
        except STRANGE:
            return []

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
