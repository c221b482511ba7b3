"""Sorted runs of events, in memory or spilled to disk.

A run is what an external merge sort calls one: rows in start order, ties in
file order. Spilled runs are read by the piece, so that neither the memory nor
the address space nor the open files of a worker grow with the trace.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from profd.collate.spill import Extent, SpillFile
from profd.events import COLUMNS, Dictionary, EventTable

Array = npt.NDArray[Any]
ArgKey = tuple[str, str]

FILE_COLUMN: Final = "_file"  # int32, which input a row is from; only while collating
_MARK_ROWS: Final = 4096  # an argument's place is known at every so many rows of a run
_START_ROWS: Final = 512  # and the start of every so many rows


class Run(Protocol):
    """Rows in start order, read by the piece."""

    rows: int
    args: dict[ArgKey, Dictionary | None]

    @property
    def columns(self) -> Collection[str]:
        """The names of its columns."""
        ...

    def before(self, time: int) -> int:
        """How many rows start before this time."""
        ...

    def start(self, row: int) -> int:
        """When a row starts."""
        ...

    def column(self, name: str, low: int, high: int) -> Array:
        """Rows [low, high) of a column that the run has."""
        ...

    def forget(self, name: str) -> None:
        """Nobody asks for this column again."""
        ...

    def arg(self, key: ArgKey, low: int, high: int) -> tuple[Array, Array]:
        """(rows relative to low, values) of an argument that the run has, within [low, high)."""
        ...


class MemoryRun:
    """A table as a run. Its rows need not be sorted when it is to be sorted as a whole."""

    def __init__(self, table: EventTable) -> None:
        self._table = table
        self.rows = len(table)
        self.args: dict[ArgKey, Dictionary | None] = {key: arg.dictionary for key, arg in table.args.items()}

    @property
    def columns(self) -> Collection[str]:
        """The names of its columns."""
        return self._table.columns.keys()

    def before(self, time: int) -> int:
        """How many rows start before this time."""
        return int(np.searchsorted(self._table.columns["start"], np.int64(time)))

    def start(self, row: int) -> int:
        """When a row starts."""
        return int(self._table.columns["start"][row])

    def column(self, name: str, low: int, high: int) -> Array:
        """Rows [low, high) of a column, not copied."""
        return self._table.columns[name][low:high]

    def forget(self, name: str) -> None:
        """Free the memory of a column."""
        self._table.columns.pop(name, None)

    def arg(self, key: ArgKey, low: int, high: int) -> tuple[Array, Array]:
        """(rows relative to low, values) of an argument."""
        arg = self._table.args[key]
        first, last = np.searchsorted(arg.rows, (low, high)).tolist()
        return arg.rows[first:last] - low, arg.values[first:last]


@dataclass(frozen=True, slots=True)
class _SpilledArg:
    rows: Extent
    values: Extent
    marks: Array  # marks[i]: how many entries lie before row i * _MARK_ROWS


class SpilledRun:
    """A run in a spill file, which it shares with others."""

    def __init__(self, file: SpillFile) -> None:
        self._file = file
        self._columns: dict[str, Extent] = {}
        self._args: dict[ArgKey, _SpilledArg] = {}
        self._some_starts: Array = np.empty(0, dtype=np.int64)
        self._first_start = self._last_start = 0
        self.rows = 0
        self.args: dict[ArgKey, Dictionary | None] = {}

    @property
    def columns(self) -> Collection[str]:
        """The names of its columns."""
        return self._columns.keys()

    def write_column(self, name: str, values: Array) -> None:
        """Add a column; "start" comes first."""
        self._columns[name] = self._file.append(values)
        if name == "start":
            self.rows = len(values)
            self._some_starts = values[::_START_ROWS].copy()
            if len(values):
                self._first_start, self._last_start = int(values[0]), int(values[-1])

    def write_arg(self, key: ArgKey, rows: Array, values: Array, dictionary: Dictionary | None) -> None:
        """Add an argument column; rows ascending."""
        marks = np.searchsorted(rows, np.arange(0, self.rows + 2 * _MARK_ROWS, _MARK_ROWS))
        self._args[key] = _SpilledArg(self._file.append(rows), self._file.append(values), marks)
        self.args[key] = dictionary

    def before(self, time: int) -> int:
        """How many rows start before this time."""
        # Most runs lie wholly before or behind the time that is asked for, and nothing need be read.
        if time > self._last_start:
            return self.rows
        if time <= self._first_start:
            return 0
        # Of the rows whose start is in memory, the last that starts before it: its stretch has the answer.
        stretch = int(np.searchsorted(self._some_starts, np.int64(time))) - 1
        if stretch < 0:
            return 0
        low = stretch * _START_ROWS
        starts = self.column("start", low, min(low + _START_ROWS, self.rows))
        return low + int(np.searchsorted(starts, np.int64(time)))

    def start(self, row: int) -> int:
        """When a row starts."""
        return int(self.column("start", row, row + 1)[0])

    def column(self, name: str, low: int, high: int) -> Array:
        """Rows [low, high) of a column, read from the file."""
        return self._file.read(self._columns[name], low, high)

    def forget(self, name: str) -> None:
        """Nothing: it is on disk, and other stretches of it are still to be read."""

    def arg(self, key: ArgKey, low: int, high: int) -> tuple[Array, Array]:
        """(rows relative to low, values) of an argument, read from the file."""
        arg = self._args[key]
        first, last = int(arg.marks[low // _MARK_ROWS]), int(arg.marks[high // _MARK_ROWS + 1])
        rows = self._file.read(arg.rows, first, last)
        skip, stop = np.searchsorted(rows, (low, high)).tolist()
        return rows[skip:stop] - low, self._file.read(arg.values, first + skip, first + stop)


def absent_column(name: str, rows: int) -> Array:
    """A column of `rows` absent values."""
    if name == FILE_COLUMN:
        return np.zeros(rows, dtype=np.int32)
    spec = COLUMNS[name]
    return np.full(rows, 0 if spec.absent is None else spec.absent, dtype=spec.dtype)
