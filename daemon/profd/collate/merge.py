"""Pieces of runs to rows in start order, a column at a time, and where to cut segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profd import _engine
from profd.collate.runs import ArgKey, MemoryRun, Run, SpilledRun, absent_column
from profd.collate.spill import SpillFile
from profd.events import ArgColumn, Dictionary, EventTable

Array = npt.NDArray[Any]

# An argument in fewer than one of so many rows is sorted, otherwise scattered over all rows.
_SPARSE: Final = 16
_NO_ROWS: Final = np.empty(0, dtype=np.int64)
_RUN_ROWS: Final = 16  # rows in order, on average, from which merging is faster than a radix sort


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows [low, high) of a run."""

    run: Run
    low: int
    high: int


def _stable_order(starts: Array) -> Array | None:
    """The rows in start order, ties as they are; None where they are in order already.

    Chunks of threads, and runs that were sorted before, are long stretches in order: numpy's stable sort merges
    those (2 ns a row), the radix sort does not care (23 ns).
    """
    descents = int(np.count_nonzero(starts[1:] < starts[:-1]))
    if descents == 0:
        return None
    if descents * _RUN_ROWS < len(starts):
        return np.argsort(starts, kind="stable")
    return _engine.argsort(starts)


class Gathering:
    """The rows of some pieces, in start order, ties in the order of the pieces."""

    def __init__(self, pieces: list[Piece]) -> None:
        self._pieces = [piece for piece in pieces if piece.high > piece.low]
        offsets = np.cumsum([0] + [piece.high - piece.low for piece in self._pieces])
        self._offsets: list[int] = offsets.tolist()
        self.rows: int = self._offsets[-1]
        starts = [piece.run.column("start", piece.low, piece.high) for piece in self._pieces] or [_NO_ROWS]
        unordered = np.concatenate(starts) if len(starts) != 1 else starts[0]
        self._order = _stable_order(unordered)
        self._starts = self._ordered([unordered])
        self._place: Array | None = None
        # A dictionary instead of a set: columns keep the order in which they came.
        self.columns = list(dict.fromkeys(name for piece in self._pieces for name in piece.run.columns))
        self.args: dict[ArgKey, Dictionary | None] = {}
        for piece in self._pieces:
            self.args.update(piece.run.args)

    def column(self, name: str) -> Array:
        """A column in start order; absent where a piece does not have it."""
        if name == "start":
            return self._starts
        parts = [
            piece.run.column(name, piece.low, piece.high)
            if name in piece.run.columns
            else absent_column(name, piece.high - piece.low)
            for piece in self._pieces
        ]
        return self._ordered(parts)

    def _taken(self, name: str) -> Array:
        """`column`, for the last time: what it was put together from is let go of."""
        column = self.column(name)
        if self._copies:
            for piece in self._pieces:
                piece.run.forget(name)
        return column

    @property
    def _copies(self) -> bool:
        """Whether columns are arrays of their own: those of one piece in order are the run's."""
        return self._order is not None or len(self._pieces) != 1

    def _ordered(self, parts: list[Array]) -> Array:
        if self._order is not None:
            return _engine.gather(parts, self._order)
        return np.concatenate(parts) if len(parts) != 1 else parts[0]

    def arg(self, key: ArgKey) -> tuple[Array, Array]:
        """(rows ascending, values) of an argument."""
        rows, values = [], []
        for piece, offset in zip(self._pieces, self._offsets, strict=False):
            if key in piece.run.args:
                at, given = piece.run.arg(key, piece.low, piece.high)
                rows.append(at + offset)
                values.append(given)
        all_rows, all_values = np.concatenate(rows), np.concatenate(values)
        if self._order is None:
            return all_rows, all_values
        if self._place is None:
            self._place = _engine.places(self._order, self.rows)
        place = self._place[all_rows]
        if key[1] == "ints" or len(place) * _SPARSE < self.rows:
            order = _engine.argsort(place)
            return place[order], all_values[order]
        present = np.zeros(self.rows, dtype=np.bool_)
        present[place] = True
        spread = np.empty(self.rows, dtype=all_values.dtype)
        spread[place] = all_values
        return np.flatnonzero(present), spread[present]

    def table(self, dictionaries: dict[str, Dictionary], first_row: int) -> EventTable:
        """All of it in memory. Once: runs in memory keep no columns that are copied."""
        columns = {name: self._taken(name) for name in self.columns}
        args = {}
        for key, dictionary in self.args.items():
            rows, values = self.arg(key)
            if len(rows):
                args[key] = ArgColumn(key[1], rows, values, dictionary)
        return EventTable(columns, dictionaries, args, first_row)

    def rows_before(self, time: int) -> int:
        """How many of the rows start before a time."""
        return int(np.searchsorted(self._starts, np.int64(time)))

    def cut(self, rows: int) -> int:
        """Where to cut, at most so many rows from the first, so that rows that start together stay together.

        As in `segments`: unless more of them start together.
        """
        if rows >= self.rows:
            return self.rows
        return int(np.searchsorted(self._starts, self._starts[rows])) or rows

    def split(self, at: int) -> tuple[Gathering, Gathering]:
        """The first `at` rows and the others, which share their arrays."""
        run = MemoryRun(self.table({}, 0))
        return Gathering([Piece(run, 0, at)]), Gathering([Piece(run, at, run.rows)])

    def spill(self, file: SpillFile) -> SpilledRun:
        """All of it in a run on disk. Once: each column is let go of when it is written."""
        run = SpilledRun(file)
        for name in sorted(self.columns, key=lambda name: name != "start"):
            run.write_column(name, self._taken(name))
        for key, dictionary in self.args.items():
            rows, values = self.arg(key)
            run.write_arg(key, rows, values, dictionary)
        return run


def segments(runs: Sequence[Run], rows_max: int, given: Sequence[int] | None = None) -> Iterator[list[Piece]]:
    """Cut sorted runs, without the first rows of each that are given, into segments of at most `rows_max` rows.

    Rows that start together stay together (the tree orders them by length),
    unless there are more of them than a segment holds.
    """
    low = [0] * len(runs) if given is None else list(given)
    total = [run.rows for run in runs]
    while low != total:
        high = _cut(runs, low, total, rows_max)
        yield [Piece(run, first, last) for run, first, last in zip(runs, low, high, strict=True)]
        low = high


def _cut(runs: Sequence[Run], low: list[int], total: list[int], rows_max: int) -> list[int]:
    if sum(total) - sum(low) <= rows_max:
        return total
    first = min(run.start(at) for run, at, end in zip(runs, low, total, strict=True) if at < end)
    # The latest time before which no more than rows_max rows start.
    below, above = first, max(run.start(run.rows - 1) for run in runs if run.rows) + 1
    while above - below > 1:
        middle = (below + above) // 2
        if sum(_before(runs, middle)) - sum(low) <= rows_max:
            below = middle
        else:
            above = middle
    if below > first:
        return _before(runs, below)
    # More rows than a segment holds start at `first`: in file order, as many as fit.
    left, high = rows_max, list(low)
    for number, end in enumerate(_before(runs, first + 1)):
        high[number] = min(end, low[number] + left)
        left -= high[number] - low[number]
    return high


def _before(runs: Sequence[Run], time: int) -> list[int]:
    # Beyond int64 there is nothing: the greatest start plus one.
    if time > np.iinfo(np.int64).max:
        return [run.rows for run in runs]
    return [run.before(time) for run in runs]
