"""Takes the batches of all inputs of a trace, gives back its segments and flows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profd.collate.merge import Gathering
from profd.collate.runs import FILE_COLUMN, ArgKey
from profd.collate.sorter import Sorter
from profd.decode.batch import Batch
from profd.events import NO_ROW, ArgColumn, Dictionary, EventTable, Flows
from profd.limits import SEGMENT_ROWS

Array = npt.NDArray[Any]

_FLOW_FIELDS: Final = [field.name for field in fields(Flows) if field.name not in ("time", "row")]


@dataclass(slots=True)
class SortedFlows:
    """Some flow records in time order and which input each is from."""

    flows: Flows
    file: Array  # int32

    def __len__(self) -> int:
        return len(self.file)

    def cut(self, at: int) -> tuple[SortedFlows, SortedFlows]:
        """The first `at` records and the others, not copied."""
        names = [field.name for field in fields(Flows)]
        first = Flows(**{name: getattr(self.flows, name)[:at] for name in names})
        others = Flows(**{name: getattr(self.flows, name)[at:] for name in names})
        return SortedFlows(first, self.file[:at]), SortedFlows(others, self.file[at:])


class Collator:
    """Sorts events and flow records by time, stable, at most a segment of each in memory.

    Events that start together stay in the order in which they were added. A batch
    belongs to the collator once added.
    """

    def __init__(self, spill_to: Path, segment_rows: int = SEGMENT_ROWS) -> None:
        self._events = Sorter(spill_to, segment_rows)
        self._flows = Sorter(spill_to, max(1, segment_rows // 4))
        self._arg_dictionaries: dict[ArgKey, Dictionary] = {}
        self._translations: dict[
            tuple[ArgKey, int], tuple[Dictionary, Array]
        ] = {}  # codes of later inputs to shared ones
        self._given = 0  # rows of segments

    @property
    def rows(self) -> int:
        """Events added so far."""
        return self._events.rows

    def add(self, batch: Batch, file: int = 0) -> None:
        """Take a batch of input number `file`."""
        if batch.flows is not None:
            if batch.settled is not None:
                raise ValueError("an input with flow records settles nothing")
            self._add_flows(batch.flows, file)
        table = batch.events
        for key, arg in table.args.items():
            self._share_dictionary(key, arg)
        if file:
            table.columns[FILE_COLUMN] = np.full(len(table), file, dtype=np.int32)
        self._events.add(table, batch.before, batch.settled)

    def _share_dictionary(self, key: ArgKey, arg: ArgColumn) -> None:
        """One dictionary per argument in the whole trace, whatever each input brought."""
        given = arg.dictionary
        if given is None:
            return
        shared = self._arg_dictionaries.setdefault(key, given)
        if shared is given:
            return
        _, codes = self._translations.get((key, id(given)), (given, np.empty(0, dtype=np.int32)))
        new = [shared.code(value) for value in given.values[len(codes) :]]
        codes = np.append(codes, np.array(new, dtype=np.int32))
        self._translations[key, id(given)] = (given, codes)  # kept alive, so the id stays its own
        arg.values, arg.dictionary = codes[arg.values], shared

    def _add_flows(self, flows: Flows, file: int) -> None:
        columns = {name: getattr(flows, name) for name in _FLOW_FIELDS}
        columns["start"] = flows.time
        columns[FILE_COLUMN] = np.full(len(flows.time), file, dtype=np.int32)
        self._flows.add(EventTable(columns, {}))

    def ready(self, dictionaries: dict[str, Dictionary]) -> Iterator[EventTable]:
        """Yield the next segments as far as they are settled: `segments` has the others. After each batch."""
        return self._tables(self._events.ready(), dictionaries)

    def segments(self, dictionaries: dict[str, Dictionary]) -> Iterator[EventTable]:
        """Yield the segments in order; the last one ends at row `rows`.

        Once, after the last batch, with the dictionaries that the batches refer to.
        """
        return self._tables(self._events.segments(), dictionaries)

    def _tables(self, gatherings: Iterator[Gathering], dictionaries: dict[str, Dictionary]) -> Iterator[EventTable]:
        def table(gathering: Gathering) -> EventTable:
            first = self._given
            self._given += gathering.rows
            return gathering.table(dictionaries, first)

        return map(table, gatherings)  # a loop would hold on to the rows as they were while a segment is written

    def flows(self) -> Iterator[SortedFlows]:
        """Yield all flow records in time order, ties as they came. Once, after the last batch."""
        for gathering in self._flows.segments():
            columns = {name: gathering.column(name) for name in _FLOW_FIELDS}
            unbound = np.full(gathering.rows, NO_ROW, dtype=np.int64)
            flows = Flows(**columns, time=gathering.column("start"), row=unbound)
            yield SortedFlows(flows, gathering.column(FILE_COLUMN))
