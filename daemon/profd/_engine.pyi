"""Hot loops of the trace engine over columns (C++; sources in `native/engine`).

All arrays are one-dimensional, contiguous and of exactly the dtype named: a
wrong dtype is a TypeError; wrong lengths, unsorted rows and codes out of range
are a ValueError. The GIL is released while they run. Linear time, no recursion.
"""

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
UInt8 = npt.NDArray[np.uint8]

def argsort(keys: Int64) -> Int64:
    """The stable order that sorts `keys` ascending: `keys[argsort(keys)]`."""

def nest(
    start: Int64, end: Int64, thread: Int32, include: UInt8, *, threads_max: int = 4194304
) -> tuple[Int64, Int64]:
    """Strict interval nesting: (parent row or -1, self time in ns).

    Rows are in start order. A row's parent is the innermost row on the same
    thread track that contains it fully and starts before it ends; partial
    overlap is not nesting. Of equal starts the longer encloses, of equal
    intervals the earlier row. A row at its neighbour's end is not inside it.
    Self time is the own duration less that of the direct children. Rows with
    `include` 0 or thread -1 are neither parents nor children: parent -1, self
    time = duration. An end that is absent or before the start counts as start.
    """

def group_rows(columns: list[Int64]) -> tuple[Int64, Int64]:
    """GROUP BY: (group number of each row, first row of each group), groups in order of first row."""

def sum_by(group: Int64, groups: int, values: Int64) -> Int64:
    """Sum of `values` in each of `groups` groups; absent values (the least int64) are skipped, sums saturate."""
