"""A row group as its file has it: numbers are not copied, and words are its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profd.segments.columns import fill_absent, values_of
from profd.segments.contract import FIELDS
from profd.segments.pages import STRANGE, Pages
from profd.segments.text import words_of

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Columns of format 2. Arrays may be read-only views of Arrow memory. ValueError for a column of another type."""

    rows: int
    table: pa.Table  # of columns that Arrow reads
    pages: dict[str, Pages]  # of all others
    by_arrow: Callable[[list[str]], pa.Table]

    def __len__(self) -> int:
        return self.rows

    def has(self, column: str) -> bool:
        """Whether it was read."""
        return column in self.pages or column in self.table.column_names

    def numbers(self, column: str, absent: int) -> Array:
        """Integers of the stored width; `absent` where there is none."""
        if column in self.pages:
            out = np.empty(self.rows, dtype=FIELDS[column].type.to_pandas_dtype())
            with contextlib.suppress(*STRANGE):
                self.pages[column].numbers(out, absent)
                return out
        array = self._array(column, FIELDS[column].type)
        values = values_of(array)
        if not array.null_count:
            return values
        values = values.copy()
        fill_absent(values, array, absent)
        return values

    def codes(self, column: str) -> tuple[Array, pa.Array]:
        """(for each row its place among the words, int32, -1 where there is none; the words)"""
        if column in self.pages:
            out = np.empty(self.rows, dtype=np.int32)
            with contextlib.suppress(*STRANGE):
                known = self.pages[column].words()
                self.pages[column].codes(out, np.arange(len(known)))
                return out, known
        array = self._array(column, pa.dictionary(pa.int32(), pa.string()))
        codes = values_of(array.indices)
        if array.null_count:
            codes = codes.copy()
            fill_absent(codes, array.indices, -1)
        return codes, array.dictionary

    def _array(self, column: str, kind: pa.DataType) -> pa.Array:
        table = self.by_arrow([column]) if column in self.pages else self.table
        found = table.column(column)
        if found.type != kind:
            raise ValueError(f"column {column} is of type {found.type}")
        return found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()


def words(array: pa.Array) -> list[str]:
    """The words of `RowGroup.codes` as they were before they were stored."""
    return words_of(array, plain=False)
