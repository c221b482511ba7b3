"""The file beside the segments: flow records."""

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
from profd.segments.text import text_array

Array = npt.NDArray[Any]

FLOW_SCHEMA: Final = pa.schema(
    [
        ("id", pa.dictionary(pa.int32(), pa.string())),
        ("category", pa.dictionary(pa.int32(), pa.string())),
        ("name", pa.dictionary(pa.int32(), pa.string())),
        ("phase", pa.int32()),
        ("enclosing", pa.bool_()),
        ("thread", pa.int32()),
        ("time", pa.int64()),
        ("row", pa.int64()),
    ]
)
FLOW_DICTIONARIES: Final = {"id": "flow_id", "category": "cat", "name": "name"}
_PLAIN: Final = ("time", "row")  # whether deltas would be safe is known too late
_NULLABLE: Final = ("thread", "row")  # -1 in memory
FLOW_TEXTS: Final = list(FLOW_DICTIONARIES)


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
                self._writer = pq.ParquetWriter(self._path, FLOW_SCHEMA, **parquet.options(FLOW_SCHEMA, _PLAIN))
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=FLOW_SCHEMA), row_group_size=self._count)
        self.rows += self._count
        self._waiting, self._count = [], 0

    def _column(self, field: pa.Field) -> pa.Array:
        values = np.concatenate([getattr(flows, field.name) for flows in self._waiting])
        dictionary = FLOW_DICTIONARIES.get(field.name)
        if dictionary is None:
            absent = values < 0 if field.name in _NULLABLE else None
            return pa.array(values.astype(field.type.to_pandas_dtype(), copy=False), mask=absent)
        used, indices = np.unique(values, return_inverse=True)
        known = self._dictionaries[dictionary].values if dictionary in self._dictionaries else []
        # Code -1 (a flow without a name) sorts first and is null.
        words = text_array([known[code] for code in used.tolist() if code >= 0])
        indices = indices.astype(np.int32) - np.int32(used[0] < 0)
        return pa.DictionaryArray.from_arrays(pa.array(indices, mask=indices < 0), words, safe=False)

    def close(self) -> None:
        """Write the rest. Raises Exhausted."""
        if self._count:
            self._flush()
        if self._writer is not None:
            with disk(self._path):
                self._writer.close()
