"""Tables that follow one another, decoded into arrays for all of them: nothing is copied to join them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from profd.events import COLUMNS, Dictionary, EventTable
from profd.segments.join import join_args

Array = npt.NDArray[Any]


class Gathering:
    """One table of so many rows, a part at a time: `room` gives the places of the next part, `take` ends it."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._arrays: dict[str, Array] = {}
        self._parts: list[tuple[int, EventTable]] = []  # for their arguments
        self._at = 0

    def room(self, name: str, rows: int) -> Array:
        """Where a column of the next part, which has so many rows, is decoded to. ValueError beyond the last row."""
        if self._at + rows > self._rows:
            raise ValueError(f"there are more than {self._rows} rows")
        array = self._arrays.get(name)
        if array is None:
            array = self._arrays[name] = np.empty(self._rows, dtype=COLUMNS[name].dtype)
            array[: self._at] = _absent(name)
        return array[self._at : self._at + rows]

    def take(self, table: EventTable) -> None:
        """The next part. Columns that do not stand in their places are copied there."""
        rows = len(table)
        for name in self._arrays.keys() | table.columns.keys():
            place = self.room(name, rows)
            values = table.columns.get(name)
            if values is None:
                place[:] = _absent(name)
            elif values.__array_interface__["data"] != place.__array_interface__["data"]:
                place[:] = values
        self._parts.append((self._at, table))
        self._at += rows

    def table(self, dictionaries: dict[str, Dictionary]) -> EventTable:
        """All of it, when every part was taken."""
        columns = {name: array[: self._at] for name, array in self._arrays.items()}
        columns.setdefault("start", np.empty(0, dtype=np.int64))
        first_row = self._parts[0][1].first_row if self._parts else 0
        return EventTable(columns, dictionaries, join_args(self._parts), first_row)


def _absent(name: str) -> int | float:
    absent = COLUMNS[name].absent
    return 0 if absent is None else absent
