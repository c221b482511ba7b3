"""Takes the batches of all inputs of a trace, gives back its segments and flows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profd import _engine
from profd.collate.merge import Gathering, Piece, segments
from profd.collate.runs import FILE_COLUMN, ArgKey, MemoryRun, Run
from profd.decode.batch import Batch
from profd.events import NO_ROW, ArgColumn, Dictionary, EventTable, Flows
from profd.limits import SEGMENT_ROWS

Array = npt.NDArray[Any]

_FLOW_DTYPES: Final[dict[str, type[np.generic]]] = {
    "id": np.int32,
    "category": np.int32,
    "name": np.int32,
    "phase": np.uint8,
    "enclosing": np.bool_,
    "thread": np.int32,
    "time": np.int64,
    "row": np.int64,
}


@dataclass(slots=True)
class SortedFlows:
    """All flow records of a trace in time order and which input each is from."""

    flows: Flows
    file: Array  # int32


class Collator:
    """Sorts by start, stable; keeps at most a segment of rows in memory and spills the rest.

    Batches in file order, files in the order in which they are to be told apart
    where they start together. A batch belongs to the collator once added.
    """

    def __init__(self, spill_to: Path, segment_rows: int = SEGMENT_ROWS) -> None:
        self._directory = spill_to
        self._segment_rows = segment_rows
        self._waiting: list[EventTable] = []
        self._waiting_rows = 0
        self._runs: list[Run] = []
        self._flows: list[tuple[Flows, int]] = []
        self._arg_dictionaries: dict[ArgKey, Dictionary] = {}
        self.rows = 0

    def add(self, batch: Batch, file: int = 0) -> None:
        """Take a batch of input number `file`."""
        if batch.flows is not None and len(batch.flows.id):
            self._flows.append((batch.flows, file))
        table = batch.events
        if len(table) == 0:
            return
        if self._waiting and self._waiting_rows + len(table) > self._segment_rows:
            self._spill()
        for key, arg in table.args.items():
            self._share_dictionary(key, arg)
        if file:
            table.columns[FILE_COLUMN] = np.full(len(table), file, dtype=np.int32)
        self._waiting.append(table)
        self._waiting_rows += len(table)
        self.rows += len(table)

    def _share_dictionary(self, key: ArgKey, arg: ArgColumn) -> None:
        """One dictionary per argument in the whole trace, whatever each input brought."""
        given = arg.dictionary
        if given is None:
            return
        shared = self._arg_dictionaries.setdefault(key, given)
        if shared is not given:
            codes = np.array([shared.code(value) for value in given.values], dtype=np.int32)
            arg.values, arg.dictionary = codes[arg.values], shared

    def _gather_waiting(self) -> Gathering:
        pieces = [Piece(MemoryRun(table), 0, len(table)) for table in self._waiting]
        self._waiting, self._waiting_rows = [], 0
        return Gathering(pieces)

    def _spill(self) -> None:
        self._runs.append(self._gather_waiting().spill(self._directory))

    def segments(self, dictionaries: dict[str, Dictionary]) -> Iterator[EventTable]:
        """Yield the segments in order; the last one ends at row `rows`.

        Once, after the last batch, with the dictionaries that the batches refer to.
        """
        if not self._runs and self.rows <= self._segment_rows:
            if self.rows:
                yield self._gather_waiting().table(dictionaries, 0)
            return
        if self._waiting:
            self._spill()
        row = 0
        for pieces in segments(self._runs, self._segment_rows):
            table = Gathering(pieces).table(dictionaries, row)
            row += len(table)
            yield table
            del table  # before the next one is gathered

    def flows(self) -> SortedFlows:
        """All flow records in time order, ties as they came. Once, after the last batch."""
        count = sum(len(flows.id) for flows, _ in self._flows)
        time = np.empty(count, dtype=np.int64)
        order = _engine.argsort(self._flow_column("time", time))
        columns = {"time": time[order]}
        for field in fields(Flows):
            if field.name == "row":
                columns["row"] = np.full(count, NO_ROW, dtype=np.int64)
            elif field.name != "time":
                dtype = _FLOW_DTYPES[field.name]
                columns[field.name] = self._flow_column(field.name, np.empty(count, dtype=dtype))[order]
        file = [np.full(len(flows.id), number, dtype=np.int32) for flows, number in self._flows]
        of_file = np.concatenate(file)[order] if file else np.empty(0, dtype=np.int32)
        self._flows = []
        return SortedFlows(Flows(**columns), of_file)

    def _flow_column(self, name: str, into: Array) -> Array:
        at = 0
        for flows, _ in self._flows:
            values = getattr(flows, name)
            into[at : at + len(values)] = values
            at += len(values)
        return into
