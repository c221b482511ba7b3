"""Different rows of several columns."""

from __future__ import annotations

import numpy as np

from profd.events.table import Array


def distinct(*columns: Array) -> tuple[Array, Array]:
    """The place of the first of each different row, in ascending order of rows; and which of these each row is.

    What `np.unique(…, axis=0, return_index=True, return_inverse=True)` says of integers, which compares rows field by
    field, 1.5 us each.
    """
    order = np.lexsort(columns[::-1])
    new = np.zeros(len(order), dtype=bool)
    new[:1] = True
    for column in columns:
        values = column[order]
        new[1:] |= values[1:] != values[:-1]
    which = np.empty(len(order), dtype=np.int64)
    which[order] = np.cumsum(new) - 1
    return order[new], which
