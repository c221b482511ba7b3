"""An external merge sort by start: at most so many rows in memory, the rest in runs on disk.

Hardly anything is written where tables come nearly in order and say how far they are complete: rows that are settled
are given back while others are still to come, with those among them that were written before.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from profd.collate.merge import Gathering, Piece, segments
from profd.collate.runs import MemoryRun, SpilledRun
from profd.collate.spill import SpillFile
from profd.events import EventTable


class Sorter:
    """Takes tables in file order, gives them back in start order, ties in file order."""

    def __init__(self, spill_to: Path, rows_max: int) -> None:
        self._directory = spill_to
        self._rows_max = rows_max
        self._waiting: list[EventTable] = []
        self._waiting_rows = 0
        self._runs: list[SpilledRun] = []
        self._given: list[int] = []  # of each run: the rows that `ready` has given back
        self._file: SpillFile | None = None
        self._before: int | None = None
        self._settled: int | None = None
        self.rows = 0

    def add(self, table: EventTable, before: int | None = None, settled: int | None = None) -> None:
        """Take a table; it belongs to the sorter from now on.

        `before`: few rows of later tables, if any, start before this time (Unix ns). Runs then
        hardly overlap, and merging them is reading them. `settled`: none of them does; `ready` is asked
        after each such table.
        """
        if len(table) == 0:
            return
        if self._waiting and self._waiting_rows + len(table) > self._rows_max and settled is None:
            self._spill(self._gather_waiting())
        self._before, self._settled = before, settled
        self._waiting.append(table)
        self._waiting_rows += len(table)
        self.rows += len(table)

    def ready(self) -> Iterator[Gathering]:
        """Yield stretches as `segments` would that no later table has rows for. After each table.

        Something is left for `segments`.
        """
        while (settled := self._settled) is not None:
            given = zip(self._runs, self._given, strict=True)
            pieces = [Piece(run, low, max(low, run.before(settled))) for run, low in given]
            spilled = sum(piece.high - piece.low for piece in pieces)
            if spilled + self._waiting_rows <= self._rows_max:
                return
            gathering = Gathering([*pieces, *self._waiting_pieces()] if spilled <= self._rows_max else [])
            rows = gathering.rows_before(settled)
            if rows * 2 < self._rows_max:  # those that are not would be sorted again and again
                if self._waiting_rows > self._rows_max:
                    self._spill(self._gather_waiting())
                return
            self._given = [piece.high for piece in pieces]
            first, rest = gathering.split(gathering.cut(min(rows, self._rows_max)))
            self._wait(rest)
            yield first

    def segments(self) -> Iterator[Gathering]:
        """Yield stretches of at most `rows_max` rows (see `merge.segments`). Once, after the last table."""
        if not self._runs and self._waiting_rows <= self._rows_max:
            if self._waiting:
                yield self._gather_waiting()
            return
        self._before = None  # whatever the last table said of later ones: there are none, and nothing is held back
        if self._waiting:
            self._spill(self._gather_waiting())
        for pieces in segments(self._runs, self._rows_max, self._given):
            yield Gathering(pieces)

    def _gather_waiting(self) -> Gathering:
        pieces = self._waiting_pieces()
        self._waiting, self._waiting_rows = [], 0
        return Gathering(pieces)

    def _waiting_pieces(self) -> list[Piece]:
        return [Piece(MemoryRun(table), 0, len(table)) for table in self._waiting]

    def _spill(self, gathering: Gathering) -> None:
        if self._file is None:
            self._file = SpillFile(self._directory)
        ready = gathering.rows if self._before is None else gathering.rows_before(self._before)
        if ready * 2 > gathering.rows > ready:
            gathering, rest = gathering.split(ready)
            self._wait(rest)
        self._runs.append(gathering.spill(self._file))
        self._given.append(0)

    def _wait(self, rest: Gathering) -> None:
        """Nothing but these rows waits."""
        self._waiting, self._waiting_rows = [], 0
        if not rest.rows:
            return
        table = rest.table({}, 0)
        # Not to hold the arrays that it shares with rows that are done with.
        table.columns = {name: values.copy() for name, values in table.columns.items()}
        self._waiting, self._waiting_rows = [table], rest.rows
