"""Values of tensors that the program read on the host: `.item()`, `float(t)`, `if t:`. Each waits for its device."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from profd.derive.memory import named
from profd.events import NO_END, EventTable

READ_NAME: Final = "aten::_local_scalar_dense"
"""The operator below `aten::item`, also where C++ reads a value by itself."""


class HostReads:
    """Fed with tables that have the columns `name`, `start` and `end`."""

    def __init__(self) -> None:
        self._calls = self._total = 0

    def add(self, table: EventTable) -> None:
        """Take in the next stretch of the trace."""
        rows = named(table, READ_NAME)
        end = table.column("end")[rows]
        known = end != NO_END
        self._calls += len(rows)
        self._total += int(np.sum(end[known] - table.columns["start"][rows[known]]))

    def as_json(self, steps: int) -> dict[str, Any] | None:
        """How many, how many a step (None: of no steps), and how long; None where there were none."""
        if not self._calls:
            return None
        return {
            "calls": self._calls,
            "per_step": round(self._calls / steps, 2) if steps else None,
            "total_ns": self._total,
        }
