"""EventTable: numpy columns plus dictionaries.

Rows of a *batch* (what decoders yield) are in file order and dictionary codes
and track numbers are already those of the whole trace. Rows of a *segment*
(what the store holds) are in start order, ties in file order; row numbers in
`parent`, `linked` and flows count across all segments of a trace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from profd.events.schema import COLUMNS

Array = npt.NDArray[Any]


class Dictionary:
    """Strings and their codes, in order of first use. Codes never change; entries are never removed."""

    def __init__(self, values: list[str] | None = None) -> None:
        self.values: list[str] = []
        self._codes: dict[str, int] = {}
        self.codes(values or [])

    def __len__(self) -> int:
        return len(self.values)

    def code(self, value: str) -> int:
        """The code of a string, which is added if it is new."""
        known = self._known()
        code = known.get(value)
        if code is None:
            code = known[value] = len(self.values)
            self.values.append(value)
        return code

    def extend(self, values: list[str]) -> None:
        """Add strings of which the caller knows that they are new; they get the next codes in order."""
        self.values += values

    def codes(self, values: list[str]) -> list[int]:
        """`code` of each; in bulk, because traces have hundreds of thousands of strings."""
        known, all_values = self._known(), self.values
        found = []
        for value in values:
            code = known.get(value)
            if code is None:
                code = known[value] = len(all_values)
                all_values.append(value)
            found.append(code)
        return found

    def _known(self) -> dict[str, int]:
        """Codes by string. Strings of `extend` join when they are asked for: most are only ever written out."""
        first, last = len(self._codes), len(self.values)
        if first < last:
            self._codes.update(zip(self.values[first:last], range(first, last), strict=True))
        return self._codes


@dataclass(slots=True)
class ArgColumn:
    """The values of one argument, in the rows that have it.

    `type` is int (int64), float (float64), str (codes of `dictionary`), json
    (codes of `dictionary`; each entry is the JSON text as it came in: booleans,
    null, lists, objects, integers beyond 64 bits) or ints (several int64 per row,
    in the order of `values`: the row stands in `rows` as often as it has values).
    """

    type: str
    rows: Array  # int64, ascending, local to the table; each once, but for ints
    values: Array  # int64, float64 or int32 codes
    dictionary: Dictionary | None = None


@dataclass(slots=True)
class Flows:
    """Flow records. A flow with a start and no finish, or several finishes, stays as it came.

    Before collation a record is bound by (thread, time); afterwards `row` says
    to which event, NO_ROW where there is none.
    """

    id: Array  # int32 codes of dictionary "flow_id" (ids may be strings)
    category: Array  # int32 codes of dictionary "cat"
    name: Array  # int32 codes of dictionary "name"
    phase: Array  # uint8: ord('s'), ord('t'), ord('f')
    enclosing: Array  # bool: bp == "e"
    thread: Array  # int32 track numbers
    time: Array  # int64 Unix ns
    row: Array  # int64


@dataclass(slots=True)
class EventTable:
    """Columns of equal length, the dictionaries they refer to, and the sparse arguments."""

    columns: dict[str, Array]
    dictionaries: dict[str, Dictionary]
    args: dict[tuple[str, str], ArgColumn] = field(default_factory=dict)  # (key, type) -> column
    first_row: int = 0  # of a segment: the trace-wide number of its row 0

    def __len__(self) -> int:
        return len(self.columns["start"])

    def column(self, name: str) -> Array:
        """A column, filled with its absent value where the table does not carry it."""
        have = self.columns.get(name)
        if have is not None:
            return have
        spec = COLUMNS[name]
        return np.full(len(self), 0 if spec.absent is None else spec.absent, dtype=spec.dtype)

    def stretch(self, first: int, last: int) -> EventTable:
        """The rows from `first` up to `last`, without arguments: nothing is copied."""
        columns = {name: values[first:last] for name, values in self.columns.items()}
        return EventTable(columns, self.dictionaries, first_row=self.first_row + first)

    def take(self, rows: Array) -> EventTable:
        """The given rows in the given order, with their arguments. Dictionaries are shared."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        where = np.full(len(self), -1, dtype=np.int64)
        where[rows] = np.arange(len(rows))
        args = {}
        for key, arg in self.args.items():
            place = where[arg.rows]
            kept = place >= 0
            place, values = place[kept], arg.values[kept]
            order = np.argsort(place, kind="stable")
            if len(order):
                args[key] = ArgColumn(arg.type, place[order], values[order], arg.dictionary)
        return EventTable(columns, self.dictionaries, args, self.first_row)
