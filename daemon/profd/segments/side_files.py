"""The files beside the segments: flow records, and patches of rows already written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.ma  # pyarrow asks for it with its first array: 10 ms in the middle of a job
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from profd.disk.files import disk
from profd.events import Dictionary, Flows
from profd.segments import parquet
from profd.segments.columns import text_array

Array = npt.NDArray[Any]

FLOW_SCHEMA: Final = pa.schema(
    [
        ("id", pa.dictionary(pa.int32(), pa.string())),
        ("category", pa.dictionary(pa.int32(), pa.string())),
        ("name", pa.dictionary(pa.int32(), pa.string())),
        ("phase", pa.uint8()),
        ("enclosing", pa.bool_()),
        ("thread", pa.int32()),
        ("time", pa.int64()),
        ("row", pa.int64()),
    ]
)
FLOW_DICTIONARIES: Final = {"id": "flow_id", "category": "cat", "name": "name"}
_LATE_SCHEMA: Final = pa.schema(
    [("row", pa.int64()), ("column", pa.dictionary(pa.int32(), pa.string())), ("value", pa.int64())]
)


def _words(words: list[str]) -> pa.Array:
    try:
        return text_array(words, pa.string())
    except UnicodeEncodeError:
        return text_array(words, pa.binary()).view(pa.string())


class FlowWriter:
    """Gathers flow records into row groups: decoders yield a few at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: list[Flows] = []
        self._count = 0
        self._dictionaries: dict[str, Dictionary] = {}
        self._writer: pq.ParquetWriter | None = None
        self.rows = 0

    def add(self, flows: Flows, dictionaries: dict[str, Dictionary]) -> None:
        """Add records; codes are those of `dictionaries`. Raises Exhausted."""
        if len(flows.id) == 0:
            return
        self._dictionaries = dictionaries
        self._waiting.append(flows)
        self._count += len(flows.id)
        if self._count >= parquet.GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        arrays = [self._column(field) for field in FLOW_SCHEMA]
        with disk(self._path):
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._path, FLOW_SCHEMA, **parquet.options(FLOW_SCHEMA))
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=FLOW_SCHEMA), row_group_size=self._count)
        self.rows += self._count
        self._waiting, self._count = [], 0

    def _column(self, field: pa.Field) -> pa.Array:
        values = np.concatenate([getattr(flows, field.name) for flows in self._waiting])
        dictionary = FLOW_DICTIONARIES.get(field.name)
        if dictionary is None:
            return pa.array(values.astype(field.type.to_pandas_dtype(), copy=False))
        used, indices = np.unique(values, return_inverse=True)
        known = self._dictionaries[dictionary].values if dictionary in self._dictionaries else []
        # Code -1 (a flow without a name) sorts first and is null.
        words = _words([known[code] for code in used.tolist() if code >= 0])
        indices = indices.astype(np.int32) - np.int32(used[0] < 0)
        return pa.DictionaryArray.from_arrays(pa.array(indices, mask=indices < 0), words, safe=False)

    def close(self) -> None:
        """Write the rest. Raises Exhausted."""
        if self._count:
            self._flush()
        if self._writer is not None:
            with disk(self._path):
                self._writer.close()


class LateWriter:
    """Patches as (row, column, value), kept until the trace is finished: they are few per segment."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: list[tuple[Array, str, Array]] = []
        self.cells = 0

    def add(self, rows: Array, column: str, values: Array) -> None:
        """Patch these rows (trace-wide numbers) of a column of integers."""
        if len(rows):
            self.cells += len(rows)
            self._parts.append((np.array(rows, np.int64), column, np.array(values, np.int64)))

    def close(self) -> None:
        """Write all of them. Raises Exhausted."""
        if not self._parts:
            return
        names = sorted({column for _, column, _ in self._parts})
        codes = [np.full(len(rows), names.index(column), np.int32) for rows, column, _ in self._parts]
        arrays = [
            pa.array(np.concatenate([rows for rows, _, _ in self._parts])),
            pa.DictionaryArray.from_arrays(np.concatenate(codes), names),
            pa.array(np.concatenate([values for _, _, values in self._parts])),
        ]
        with disk(self._path):
            parquet.write_table(self._path, pa.Table.from_arrays(arrays, schema=_LATE_SCHEMA))
