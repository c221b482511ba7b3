"""Values that became known after their segment was written: gathered, and of traces of before patched in.

Traces of before have them in `late.parquet`; now they are put into the segments when the trace is finished (`fold.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profd.events import COLUMNS, EventTable

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class LatePatches:
    """column -> (rows ascending, values); per row the latest patch only."""

    patches: dict[str, tuple[Array, Array]]

    @classmethod
    def of(cls, table: pa.Table) -> LatePatches:
        """From the contents of `late.parquet`."""
        rows = table.column("row").to_numpy()
        values = table.column("value").to_numpy()
        column = np.array(table.column("column").to_pylist(), dtype=object)
        patches = {}
        for name in dict.fromkeys(column.tolist()):
            of_it = column == name
            patches[name] = _latest(rows[of_it], values[of_it])
        return cls(patches)

    def within(self, first: int, count: int) -> dict[str, tuple[Array, Array]]:
        """The patches of so many rows from `first` on, which counts as 0."""
        found = {}
        for name, (rows, values) in self.patches.items():
            low, high = np.searchsorted(rows, (first, first + count))
            if low < high:
                found[name] = rows[low:high] - first, values[low:high]
        return found

    def apply(self, table: EventTable, columns: Collection[str] | None) -> None:
        """Patch a segment's table in place, in the columns asked for (None: all)."""
        for name, (rows, values) in self.within(table.first_row, len(table)).items():
            if columns is None or name in columns:
                patched = table.columns[name] = table.column(name)
                patched[rows] = values.astype(COLUMNS[name].dtype)


@dataclass(slots=True)
class LateCells:
    """Cells as they come, later ones winning. They are few per segment."""

    _parts: dict[str, list[tuple[Array, Array]]] = field(default_factory=dict)

    def add(self, rows: Array, column: str, values: Array) -> None:
        """Set these rows (trace-wide numbers) of a column of integers."""
        if len(rows):
            self._parts.setdefault(column, []).append((np.array(rows, np.int64), np.array(values, np.int64)))

    def patches(self) -> LatePatches:
        """All of them."""
        return LatePatches(
            {
                name: _latest(np.concatenate([at for at, _ in parts]), np.concatenate([new for _, new in parts]))
                for name, parts in self._parts.items()
            }
        )


def _latest(rows: Array, values: Array) -> tuple[Array, Array]:
    order = np.argsort(rows, kind="stable")
    rows, values = rows[order], values[order]
    last = np.append(rows[1:] != rows[:-1], True)
    return rows[last], values[last]
