"""Several tables of one trace as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from profd.events import COLUMNS, ArgColumn, Dictionary, EventTable

Array = npt.NDArray[Any]


def join(tables: list[EventTable], dictionaries: dict[str, Dictionary]) -> EventTable:
    """Concatenate tables that share their dictionaries. Memory: all of them, twice at the peak."""
    if len(tables) == 1:
        return tables[0]
    if not tables:
        return EventTable({"start": np.empty(0, dtype=np.int64)}, dictionaries)
    names = dict.fromkeys(name for table in tables for name in table.columns)
    columns = {name: np.concatenate([_column(table, name) for table in tables]) for name in names}
    parts, offset = [], 0
    for table in tables:
        parts.append((offset, table))
        offset += len(table)
    return EventTable(columns, dictionaries, join_args(parts), tables[0].first_row)


def _column(table: EventTable, name: str) -> Array:
    return table.columns[name] if name not in COLUMNS else table.column(name)


def join_args(tables: list[tuple[int, EventTable]]) -> dict[tuple[str, str], ArgColumn]:
    """The arguments of tables that begin at these rows of what they are joined to."""
    parts: dict[tuple[str, str], list[tuple[int, ArgColumn]]] = {}
    for offset, table in tables:
        for key, arg in table.args.items():
            parts.setdefault(key, []).append((offset, arg))
    return {
        key: ArgColumn(
            key[1],
            np.concatenate([arg.rows + first for first, arg in found]),
            np.concatenate([arg.values for _, arg in found]),
            found[0][1].dictionary,
        )
        for key, found in parts.items()
    }
