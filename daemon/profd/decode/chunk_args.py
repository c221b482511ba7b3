"""JSON objects of user arguments to sparse columns, one for each (key, type)."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profd.events import ArgColumn, Dictionary
from profd.limits import ARG_KEYS_MAX

Array = npt.NDArray[Any]

_DTYPES: Final[dict[str, type[np.generic]]] = {"int": np.int64, "float": np.float64, "str": np.int32, "json": np.int32}
_REST: Final = "@extra"  # where keys beyond ARG_KEYS_MAX go, as one object: see ArgColumn and the export
_INT64: Final = range(-(1 << 63), 1 << 63)


def _typed(value: Any) -> tuple[str, Any]:
    """(type of the column, value; JSON as its text)"""
    if type(value) is int and value in _INT64:
        return "int", value
    if type(value) is float:
        return "float", value
    if type(value) is str:
        return "str", value
    return "json", json.dumps(value)


class ChunkArguments:
    """The meaning of each argument text, and the columns that it goes to."""

    def __init__(self) -> None:
        self.bad = 0  # texts that are no JSON objects
        self._keys: set[str] = set()
        self._dictionaries: dict[tuple[str, str], Dictionary] = {}
        self._known: list[list[tuple[tuple[str, str], Any]]] = []  # by code: (key, type) and value or code

    def extend(self, texts: list[bytes]) -> None:
        """The texts that got the next codes."""
        self._known += [self._parse(text) for text in texts]

    def _parse(self, text: bytes) -> list[tuple[tuple[str, str], Any]]:
        try:
            members = json.loads(text)
        except (ValueError, RecursionError):
            members = None
        if not isinstance(members, dict):
            self.bad += 1
            return []
        rest = {key: members.pop(key) for key in list(members) if not self._admits(key)}
        columns = [
            self._column("@" + key if key.startswith("@") else key, *_typed(value)) for key, value in members.items()
        ]
        return [*columns, self._column(_REST, "json", json.dumps(rest))] if rest else columns

    def _admits(self, key: str) -> bool:
        if key not in self._keys and len(self._keys) < ARG_KEYS_MAX:
            self._keys.add(key)
        return key in self._keys

    def _column(self, key: str, kind: str, value: Any) -> tuple[tuple[str, str], Any]:
        if kind not in ("str", "json"):
            return (key, kind), value
        return (key, kind), self._dictionaries.setdefault((key, kind), Dictionary()).code(value)

    def columns(self, rows: Array, codes: Array) -> dict[tuple[str, str], ArgColumn]:
        """The columns of a batch, from its rows that have arguments (ascending) and the codes of their texts."""
        found: dict[tuple[str, str], tuple[list[int], list[Any]]] = {}
        for row, code in zip(rows.tolist(), codes.tolist(), strict=True):
            for column, value in self._known[code]:
                at, values = found.setdefault(column, ([], []))
                at.append(row)
                values.append(value)
        return {
            column: ArgColumn(
                column[1],
                np.array(at, dtype=np.int64),
                np.array(values, dtype=_DTYPES[column[1]]),
                self._dictionaries.get(column),
            )
            for column, (at, values) in found.items()
        }
