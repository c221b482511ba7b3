"""Values that became known after their segment was written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
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

    def apply(self, table: EventTable, columns: Collection[str] | None) -> None:
        """Patch a segment's table in place, in the columns asked for (None: all)."""
        low, high = table.first_row, table.first_row + len(table)
        for name, (rows, values) in self.patches.items():
            if columns is not None and name not in columns:
                continue
            first, last = np.searchsorted(rows, (low, high))
            if first < last:
                patched = table.columns[name] = table.column(name)
                patched[rows[first:last] - low] = values[first:last].astype(COLUMNS[name].dtype)


def _latest(rows: Array, values: Array) -> tuple[Array, Array]:
    order = np.argsort(rows, kind="stable")
    rows, values = rows[order], values[order]
    last = np.append(rows[1:] != rows[:-1], True)
    return rows[last], values[last]
