"""Names and arguments of a Perfetto trace, each string written once (interned)."""

from __future__ import annotations

import json
import math
from typing import Final

import numpy as np

from profd.events import COLUMNS, NO_CODE, NO_END, Dictionary, EventTable
from profd.events.table import ArgColumn, Array
from profd.export import wire
from profd.segments import plain_json

# As Kineto names them.
_INTEGERS: Final = {
    "external": "External id",
    "correlation": "correlation",
    "device": "device",
    "context": "context",
    "stream": "stream",
    "sequence": "Sequence number",
    "fwd_thread": "Fwd thread id",
    "bytes": "Bytes",
    "ptr": "Addr",
    "total_allocated": "Total Allocated",
    "total_reserved": "Total Reserved",
    "weight": "weight",
}
_TEXTS: Final = {"stack": "Call stack", "module": "Module Hierarchy"}
NOTE_COLUMNS: Final = (*_INTEGERS, *_TEXTS, "inputs")

# Fields of InternedData.
_CATEGORY, _NAME, _KEY, _STRING = 1, 2, 3, 29


class Interned:
    """Ids of strings, and the InternedData entries that are still to be written."""

    def __init__(self) -> None:
        self._ids: dict[tuple[int, str], int] = {}
        self.waiting: list[bytes] = []

    def name(self, value: str) -> int:
        """The id of an event's name."""
        return self._id(_NAME, value)

    def category(self, value: str) -> int:
        """The id of a category."""
        return self._id(_CATEGORY, value)

    def key(self, value: str) -> int:
        """The id of an argument's name."""
        return self._id(_KEY, value)

    def string(self, value: str) -> int:
        """The id of an argument's value."""
        return self._id(_STRING, value)

    def _id(self, kind: int, value: str) -> int:
        number = self._ids.get((kind, value))
        if number is None:
            number = self._ids[kind, value] = len(self._ids) + 1
            self.waiting.append(wire.message(kind, wire.integer(1, number), wire.text(2, value)))
        return number


class Notes:
    """Arguments as debug annotations. The codes it is fed with are those of one reader."""

    def __init__(self, interned: Interned) -> None:
        self._interned = interned
        self._texts: dict[tuple[str, str, int], bytes] = {}  # of a dictionary's string

    def of(self, table: EventTable) -> list[bytes]:
        """The debug annotations of each row, encoded."""
        notes = [b""] * len(table)
        for column, key in _INTEGERS.items():
            if column in table.columns:
                values = table.columns[column]
                rows = np.flatnonzero(values != NO_END)
                self._add(notes, rows, self._integers(key, values[rows]))
        for column in (*_TEXTS, "inputs"):
            dictionary = table.dictionaries.get(str(COLUMNS[column].dictionary))
            if column in table.columns and dictionary is not None:
                codes = table.columns[column]
                rows = np.flatnonzero(codes != NO_CODE)
                self._add(notes, rows, self._coded(_TEXTS.get(column, ""), "", codes[rows], dictionary))
        for (key, kind), arg in table.args.items():
            self._add(notes, arg.rows, self._argument(key, kind, arg))
        return notes

    @staticmethod
    def _add(notes: list[bytes], rows: Array, encoded: list[bytes]) -> None:
        for row, note in zip(rows.tolist(), encoded, strict=True):
            notes[row] += note

    def _argument(self, key: str, kind: str, arg: ArgColumn) -> list[bytes]:
        if kind == "int":
            return self._integers(key, arg.values)
        if kind == "float":
            head = wire.integer(1, self._interned.key(key))
            return [wire.message(4, head, wire.double(5, value)) for value in arg.values.tolist()]
        return self._coded(key, kind, arg.values, arg.dictionary) if arg.dictionary is not None else []

    def _integers(self, key: str, values: Array) -> list[bytes]:
        head = wire.integer(1, self._interned.key(key))
        return [wire.message(4, head, wire.integer(4, value)) for value in values.tolist()]

    def _coded(self, key: str, kind: str, codes: Array, dictionary: Dictionary) -> list[bytes]:
        known, words = self._texts, dictionary.values
        for code in np.unique(codes).tolist():
            if (key, kind, code) not in known:
                known[key, kind, code] = self._text(key, words[code]) if key else self._members(words[code])
        return [known[key, kind, code] for code in codes.tolist()]

    def _text(self, key: str, value: str) -> bytes:
        return wire.message(4, wire.integer(1, self._interned.key(key)), wire.integer(17, self._interned.string(value)))

    def _members(self, text: str) -> bytes:
        """`Input Dims` and its kin: a note for each member of the object."""
        try:
            members = plain_json.loads(text)
        except (ValueError, RecursionError):
            members = None
        if not isinstance(members, dict):
            return self._text("inputs", text)
        return b"".join(self._text(key, json.dumps(value)) for key, value in members.items())


def counter_values(table: EventTable) -> dict[int, list[tuple[str, float]]]:
    """(series, value) of the rows that have numbers among their arguments, or a value."""
    found: dict[int, list[tuple[str, float]]] = {}
    for (key, kind), arg in table.args.items():
        if kind in ("int", "float") and not key.startswith("@"):
            for row, value in zip(arg.rows.tolist(), arg.values.tolist(), strict=True):
                found.setdefault(row, []).append((key, float(value)))
    for row, value in enumerate(table.column("value").tolist()):
        if row not in found and not math.isnan(value):
            found[row] = [("", value)]
    return found
