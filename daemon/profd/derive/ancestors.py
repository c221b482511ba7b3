"""Walks up a table's parent column, for all rows at once."""

from __future__ import annotations

import numpy as np

from profd import _engine
from profd.events import NO_ROW
from profd.events.table import Array


def nearest(parent: Array, wanted: Array) -> Array:
    """For each row the nearest row above it that is wanted, or NO_ROW; `parent` is overwritten."""
    # Rows in between are jumped over, the distance doubling each time.
    while len(over := np.flatnonzero((parent != NO_ROW) & ~wanted[parent])):
        parent[over] = parent[parent[over]]
    return parent


def subtree_sums(own: Array, parent: Array) -> Array:
    """Sum of `own` over each row and all below it, in as many passes as the depth has binary digits."""
    total, ancestor = own.copy(), parent
    # After k passes a row has the sum of what lies fewer than 2^k levels below it, and `ancestor` is 2^k above.
    while len(rows := np.flatnonzero((total != 0) & (ancestor != NO_ROW))):
        total = total + _engine.sum_by(ancestor[rows], len(total), total[rows])
        ancestor = np.where(ancestor == NO_ROW, NO_ROW, ancestor[ancestor])
    return total
