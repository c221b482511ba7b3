"""Cells that became known after their segment was written, put into it: one column of one row group is encoded anew,
and the file is copied around it. A reader that knows nothing of this cannot be wrong.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from profd.disk.files import disk
from profd.events import COLUMNS
from profd.segments.columns import decode_column
from profd.segments.footer import MAGIC, Chunk, Footer, columns_of, rows_of, set_columns
from profd.segments.segment_writer import encode_one
from profd.segments.thrift import Struct

Array = npt.NDArray[Any]
Cells = dict[str, tuple[Array, Array]]  # column -> (rows ascending, values)


def fold(path: Path, cells: Cells) -> None:
    """Set cells of a segment file; rows count from its first. Columns of integers only. Raises Exhausted.

    The file is of a trace that is being written: killed meanwhile, that is none. Workers have no call to rename a file.
    """
    with disk(path), path.open("rb") as file:
        path.unlink()
        with path.open("xb") as out:
            footer, _ = Footer.of(file)
            out.write(MAGIC)
            first = 0
            for number, group in enumerate(footer.groups):
                rows = rows_of(group)
                _copy(group, file, out, _changed(file, number, first, rows, cells))
                first += rows
            out.write(footer.encode())


def _copy(group: Struct, file: BinaryIO, out: BinaryIO, changed: dict[bytes, Chunk]) -> None:
    """Write the columns of a row group, and its description as they are now."""
    columns, unpacked, packed = [], 0, 0
    for column in columns_of(group):
        chunk = old = Chunk(column, file)
        if old.name in changed:
            chunk = changed[old.name]
            unpacked, packed = unpacked + chunk.unpacked - old.unpacked, packed + chunk.packed - old.packed
        columns.append(chunk.moved(out.tell()))
        out.write(chunk.data())
    set_columns(group, columns, unpacked=unpacked, packed=packed)


def _changed(source: BinaryIO, number: int, first: int, rows: int, cells: Cells) -> dict[bytes, Chunk]:
    """The columns of a row group that have other values now."""
    changed: dict[bytes, Chunk] = {}
    for name, (at, given) in cells.items():
        low, high = np.searchsorted(at, (first, first + rows))
        if low == high:
            continue
        spec = COLUMNS[name]
        column = pq.ParquetFile(source).read_row_group(number, columns=[name]).column(name)
        values = decode_column(spec, column, {}, np.empty(rows, dtype=spec.dtype))
        values[at[low:high] - first] = given[low:high].astype(spec.dtype)
        alone = io.BytesIO(encode_one(values, name))
        (group,) = Footer.of(alone)[0].groups
        (only,) = columns_of(group)
        changed[name.encode()] = Chunk(only, alone)
    return changed
