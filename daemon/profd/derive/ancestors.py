"""Walks up a table's parent column, for all rows at once."""

from __future__ import annotations

import numpy as np

from profd.events import NO_ROW
from profd.events.table import Array


def nearest(parent: Array, wanted: Array) -> Array:
    """For each row the nearest row above it that is wanted, or NO_ROW; `parent` is overwritten."""
    # Rows in between are jumped over, the distance doubling each time.
    while len(over := np.flatnonzero((parent != NO_ROW) & ~wanted[parent])):
        parent[over] = parent[parent[over]]
    return parent
