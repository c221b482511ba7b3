"""An external merge sort by start: at most so many rows in memory, the rest in runs on disk."""

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
        self._file: SpillFile | None = None
        self._before: int | None = None
        self.rows = 0

    def add(self, table: EventTable, before: int | None = None) -> None:
        """Take a table; it belongs to the sorter from now on.

        `before`: few rows of later tables, if any, start before this time (Unix ns). Runs then
        hardly overlap, and merging them is reading them.
        """
        if len(table) == 0:
            return
        if self._waiting and self._waiting_rows + len(table) > self._rows_max:
            self._spill()
        self._before = before
        self._waiting.append(table)
        self._waiting_rows += len(table)
        self.rows += len(table)

    def segments(self) -> Iterator[Gathering]:
        """Yield stretches of at most `rows_max` rows (see `merge.segments`). Once, after the last table."""
        if not self._runs and self.rows <= self._rows_max:
            if self.rows:
                yield self._gather_waiting()
            return
        if self._waiting:
            self._spill()
        for pieces in segments(self._runs, self._rows_max):
            yield Gathering(pieces)

    def _gather_waiting(self) -> Gathering:
        pieces = [Piece(MemoryRun(table), 0, len(table)) for table in self._waiting]
        self._waiting, self._waiting_rows = [], 0
        return Gathering(pieces)

    def _spill(self) -> None:
        if self._file is None:
            self._file = SpillFile(self._directory)
        gathering = self._gather_waiting()
        ready = gathering.rows if self._before is None else gathering.rows_before(self._before)
        if ready * 2 > gathering.rows > ready:
            gathering = self._keep(gathering, ready)
        self._runs.append(gathering.spill(self._file))

    def _keep(self, gathering: Gathering, ready: int) -> Gathering:
        """The first `ready` rows; the others go on waiting."""
        run = MemoryRun(gathering.table({}, 0))
        rest = Gathering([Piece(run, ready, run.rows)])
        self._waiting, self._waiting_rows = [rest.table({}, 0)], rest.rows
        return Gathering([Piece(run, 0, ready)])
