"""Sorted runs of events, in memory or spilled to a file that has no name.

A run is what an external merge sort calls one: rows in start order, ties in
file order. Spilled columns are raw arrays one after the other; only the starts
are mapped, everything else is read by the piece, so that neither the resident
nor the address space of a worker grows with the trace.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from profd.errors import Exhausted
from profd.events import COLUMNS, Dictionary, EventTable

Array = npt.NDArray[Any]
ArgKey = tuple[str, str]

FILE_COLUMN: Final = "_file"  # int32, which input a row is from; only while collating
_MARK_ROWS: Final = 4096  # an argument's place is known at every so many rows of a run


class Run(Protocol):
    """Rows in start order, read by the piece."""

    starts: Array
    args: dict[ArgKey, Dictionary | None]

    @property
    def columns(self) -> Collection[str]:
        """The names of its columns."""
        ...

    def column(self, name: str, low: int, high: int) -> Array:
        """Rows [low, high) of a column that the run has."""
        ...

    def arg(self, key: ArgKey, low: int, high: int) -> tuple[Array, Array]:
        """(rows relative to low, values) of an argument that the run has, within [low, high)."""
        ...


class MemoryRun:
    """A table as a run. Its rows need not be sorted when it is to be sorted as a whole."""

    def __init__(self, table: EventTable) -> None:
        self._table = table
        self.starts: Array = table.columns["start"]
        self.args: dict[ArgKey, Dictionary | None] = {key: arg.dictionary for key, arg in table.args.items()}

    @property
    def columns(self) -> Collection[str]:
        """The names of its columns."""
        return self._table.columns.keys()

    def column(self, name: str, low: int, high: int) -> Array:
        """Rows [low, high) of a column, not copied."""
        return self._table.columns[name][low:high]

    def arg(self, key: ArgKey, low: int, high: int) -> tuple[Array, Array]:
        """(rows relative to low, values) of an argument."""
        arg = self._table.args[key]
        first, last = np.searchsorted(arg.rows, (low, high)).tolist()
        return arg.rows[first:last] - low, arg.values[first:last]


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Where an array lies in the spill file."""

    offset: int
    dtype: np.dtype[Any]
    count: int


@dataclass(frozen=True, slots=True)
class _SpilledArg:
    rows: _Stretch
    values: _Stretch
    marks: Array  # marks[i]: how many entries lie before row i * _MARK_ROWS


class SpilledRun:
    """A run in a file of its own; the space is freed when the run is."""

    def __init__(self, directory: Path) -> None:
        try:
            self._fd, name = tempfile.mkstemp(dir=directory, prefix="spill-")
            os.unlink(name)
        except OSError as error:
            raise _full(directory, error) from error
        weakref.finalize(self, os.close, self._fd)
        self._directory = directory
        self._size = 0
        self._columns: dict[str, _Stretch] = {}
        self._args: dict[ArgKey, _SpilledArg] = {}
        self._map: mmap.mmap | None = None
        self.args: dict[ArgKey, Dictionary | None] = {}
        self.starts: Array = np.empty(0, dtype=np.int64)

    @property
    def columns(self) -> Collection[str]:
        """The names of its columns."""
        return self._columns.keys()

    def write_column(self, name: str, values: Array) -> None:
        """Add a column. "start" comes first: a mapping begins where a page begins."""
        self._columns[name] = self._append(values)
        if name == "start" and len(values):
            self._map = mmap.mmap(self._fd, values.nbytes, prot=mmap.PROT_READ)
            self.starts = np.frombuffer(self._map, np.int64, len(values))

    def write_arg(self, key: ArgKey, rows: Array, values: Array, dictionary: Dictionary | None) -> None:
        """Add an argument column; rows ascending."""
        marks = np.searchsorted(rows, np.arange(0, len(self.starts) + 2 * _MARK_ROWS, _MARK_ROWS))
        self._args[key] = _SpilledArg(self._append(rows), self._append(values), marks)
        self.args[key] = dictionary

    def column(self, name: str, low: int, high: int) -> Array:
        """Rows [low, high) of a column, read from the file."""
        return self._read(self._columns[name], low, high)

    def arg(self, key: ArgKey, low: int, high: int) -> tuple[Array, Array]:
        """(rows relative to low, values) of an argument, read from the file."""
        arg = self._args[key]
        first, last = int(arg.marks[low // _MARK_ROWS]), int(arg.marks[high // _MARK_ROWS + 1])
        rows = self._read(arg.rows, first, last)
        skip, stop = np.searchsorted(rows, (low, high)).tolist()
        return rows[skip:stop] - low, self._read(arg.values, first + skip, first + stop)

    def release(self) -> None:
        """Let go of the pages of the mapping; they are read again where they are needed."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def _append(self, values: Array) -> _Stretch:
        data = np.ascontiguousarray(values).data.cast("B") if len(values) else memoryview(b"")
        stretch = _Stretch(self._size, values.dtype, len(values))
        self._size += len(data)
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            raise _full(self._directory, error) from error
        return stretch

    def _read(self, stretch: _Stretch, low: int, high: int) -> Array:
        values = np.empty(high - low, dtype=stretch.dtype)
        if low == high:
            return values
        room = values.data.cast("B")
        offset = stretch.offset + low * stretch.dtype.itemsize
        while room:
            got = os.preadv(self._fd, [room], offset)
            if got == 0:
                raise EOFError(f"spill file in {self._directory} ended early")
            room, offset = room[got:], offset + got
        return values


def _full(directory: Path, error: OSError) -> Exhausted:
    return Exhausted(
        f"Sorting the trace needs space in {directory}, writing there failed: {error.strerror or error}. "
        "Free space (`profctl list`, `profctl rm`), then `profctl retry`."
    )


def absent_column(name: str, rows: int) -> Array:
    """A column of `rows` absent values."""
    if name == FILE_COLUMN:
        return np.zeros(rows, dtype=np.int32)
    spec = COLUMNS[name]
    return np.full(rows, 0 if spec.absent is None else spec.absent, dtype=spec.dtype)
