"""A row group as its file has it: numbers are not copied, and words are its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profd.events import COLUMNS, Dictionary
from profd.segments.columns import decode_column, fill_absent, values_of
from profd.segments.contract import FIELDS
from profd.segments.pages import STRANGE, Pages
from profd.segments.text import words_of

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Columns of format 2, each read from its file when it is asked for. Raises STRANGE, ValueError for another type.

    Arrays may be read-only views of Arrow memory.
    """

    rows: int
    held: frozenset[str]  # columns that can be asked for
    pages_of: Callable[[str], Pages | None]  # None: of a column that is not as our writer writes it
    by_arrow: Callable[[str], pa.ChunkedArray]

    def __len__(self) -> int:
        return self.rows

    def has(self, column: str) -> bool:
        """Whether any event of the trace has a value in it."""
        return column in self.held

    def numbers(self, column: str, absent: int) -> Array:
        """Integers of the stored width; `absent` where there is none."""
        pages = self.pages_of(column)
        if pages is not None:
            out = np.empty(self.rows, dtype=FIELDS[column].type.to_pandas_dtype())
            with contextlib.suppress(*STRANGE):
                pages.numbers(out, absent)
                return out
        array = self._array(column, FIELDS[column].type)
        values = values_of(array)
        if not array.null_count:
            return values
        values = values.copy()
        fill_absent(values, array, absent)
        return values

    def decode(self, column: str, dictionaries: dict[str, Dictionary], out: Array) -> None:
        """As a table has it, into `out`: text as codes of its dictionary, which grows. Durations stay durations."""
        spec = COLUMNS[FIELDS[column].column or column]
        pages = self.pages_of(column)
        if pages is not None:
            with contextlib.suppress(*STRANGE):
                if spec.dictionary is None:
                    pages.numbers(out, int(spec.absent or 0))
                else:
                    known = dictionaries.setdefault(spec.dictionary, Dictionary())
                    pages.codes(out, np.array(known.codes(words(pages.words())), dtype=np.int64))
                return
        decode_column(spec, self.by_arrow(column), dictionaries, out)

    def codes(self, column: str) -> tuple[Array, pa.Array]:
        """(for each row its place among the words, int32, -1 where there is none; the words)"""
        pages = self.pages_of(column)
        if pages is not None:
            out = np.empty(self.rows, dtype=np.int32)
            with contextlib.suppress(*STRANGE):
                known = pages.words()
                pages.codes(out, np.arange(len(known)))
                return out, known
        array = self._array(column, pa.dictionary(pa.int32(), pa.string()))
        codes = values_of(array.indices)
        if array.null_count:
            codes = codes.copy()
            fill_absent(codes, array.indices, -1)
        return codes, array.dictionary

    def _array(self, column: str, kind: pa.DataType) -> pa.Array:
        found = self.by_arrow(column)
        if found.type != kind:
            raise ValueError(f"column {column} is of type {found.type}")
        return found.chunk(0) if found.num_chunks == 1 else found.combine_chunks()


def words(array: pa.Array) -> list[str]:
    """The words of `RowGroup.codes` as they were before they were stored."""
    return words_of(array, plain=False)
