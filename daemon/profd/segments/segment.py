"""One segment file: which of its row groups a question needs, and their rows as an EventTable."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from profd.errors import BadTrace, NotFound
from profd.events import COLUMNS, ArgColumn, Dictionary, EventTable
from profd.segments.columns import CODED_ARGS, decode_arg, decode_column
from profd.segments.meta import SegmentInfo

Array = npt.NDArray[Any]
Room = Callable[[str, int], Array]  # (column, rows) -> where they are decoded to
Window = tuple[int, int]  # [from, to) in Unix ns
Args = bool | Collection[str]  # all, none, or those of these keys

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
        raise BadTrace(f"{path} is missing: the trace is damaged. Remove it with `profctl rm`.") from error
    except _DAMAGE as error:
        raise BadTrace(f"{path} is damaged: {error}. Remove the trace with `profctl rm`.") from error


def open_parquet(path: Path) -> pq.ParquetFile:
    """A file of ours, its checksums verified as it is read. Raises what `reading` translates."""
    return pq.ParquetFile(path, page_checksum_verification=True)


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

    def decode(self, codes: Codes, room: Room) -> EventTable:
        """The rows, in arrays that `room` gives. Raises what `reading` translates."""
        columns: dict[str, Array] = {}
        sparse: dict[tuple[str, str], ArgColumn] = {}
        for name, key in self.keys.items():
            column = self.table.column(name)
            if key is None:
                columns[name] = decode_column(COLUMNS[name], column, codes.columns, room(name, len(column)))
                continue
            dictionary = codes.args.setdefault(key, Dictionary()) if key[1] in CODED_ARGS else None
            sparse[key] = decode_arg(key[1], column, dictionary)
        if "start" not in columns:
            raise LookupError("it has no column start")
        return EventTable(columns, codes.columns, sparse, self.first_row)


def own_room(name: str, rows: int) -> Array:
    """An array of its own for each column."""
    return np.empty(rows, dtype=COLUMNS[name].dtype)


class SegmentFile:
    """An open segment. Raises what `reading` translates."""

    def __init__(self, path: Path, info: SegmentInfo) -> None:
        self._info = info
        self._file = open_parquet(path)
        self._schema = self._file.schema_arrow
        self._metadata = self._file.metadata
        self._arg_keys = _arg_keys(self._schema)
        if self._metadata.num_rows != info.rows:
            raise LookupError(f"it has {self._metadata.num_rows} rows, {info.rows} were written")

    def in_window(self, window: Window, late_ends: Array) -> list[list[int]]:
        """Runs of neighbouring row groups that may have rows in the window.

        `late_ends`: rows of the trace whose end the file does not know.
        """

        def needed(group: int, first: int, rows: int) -> bool:
            low, high = window
            start = self._statistics(group, "start")
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
        return Stretch(table, keys, self._first_row(groups[0]))

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

    def _wanted(self, columns: Collection[str] | None, args: Args) -> list[str]:
        wanted = []
        for name in self._schema.names:
            key = self._arg_keys.get(name)
            if key is not None:
                take = args if isinstance(args, bool) else key[0] in args
            else:
                take = name in COLUMNS and (columns is None or name == "start" or name in columns)
            if take:
                wanted.append(name)
        return wanted


def _arg_keys(schema: pa.Schema) -> dict[str, tuple[str, str]]:
    keys = {}
    for column in schema:
        metadata = column.metadata or {}
        if b"key" in metadata and b"type" in metadata:
            keys[column.name] = (metadata[b"key"].decode("utf-8", "surrogatepass"), metadata[b"type"].decode())
    return keys
