"""Rows that have the same values in some columns, together."""

from __future__ import annotations

import numpy as np

from profd.events.table import Array


class Partition:
    """Rows by the values of one or more columns of integers; parts in the order of their values.

    A column may hold as many values as there are rows, so nothing is made per part before it is asked for.
    """

    def __init__(self, *keys: Array) -> None:
        self._keys = keys
        self.rows = np.lexsort(keys[::-1])  # of all parts, one after the other; ascending within each
        changes = np.zeros(max(len(self.rows) - 1, 0), dtype=bool)
        for key in keys:
            sorted_ = key[self.rows]
            changes |= sorted_[1:] != sorted_[:-1]
        self.starts = np.concatenate([np.zeros(min(len(self.rows), 1), dtype=np.int64), np.flatnonzero(changes) + 1])

    def __len__(self) -> int:
        return len(self.starts)

    def of(self, part: int) -> Array:
        """Its rows, ascending."""
        end = self.starts[part + 1] if part + 1 < len(self) else len(self.rows)
        rows: Array = self.rows[self.starts[part] : end]
        return rows

    def values(self, part: int) -> tuple[int, ...]:
        """The values of its rows in each column."""
        return tuple(int(key[self.rows[self.starts[part]]]) for key in self._keys)

    def after(self, parts: int) -> Array:
        """The rows of all parts but the first so many."""
        rows: Array = self.rows[self.starts[parts] :] if parts < len(self) else self.rows[:0]
        return rows
