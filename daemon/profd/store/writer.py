"""Writes a trace directory: segments, flows, late patches, `meta.json`.

Runs in a worker, into a staging directory that nobody else sees; durability
(fsync, rename) is the store's when it adopts the directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from profd.events import COLUMNS, NO_END, Column, Dictionary, EventTable, Flows, Kind
from profd.store.columns import arg_type, column_type, encode_arg, encode_column, presence, text_array
from profd.store.files import disk
from profd.store.meta import FLOWS_FILE, LATE_FILE, META_FILE, SegmentInfo, TraceMeta, encode_struct, segment_file

Array = npt.NDArray[Any]

# Times, ids and rows grow slowly from row to row; Parquet's own dictionary would hash every value
# first and then give up on them.
_DELTA_TYPES: Final = (pa.int64(),)
_DICTIONARY_COLUMNS: Final = frozenset({"device", "context", "stream", "fwd_thread", "weight"})
_GPU_KINDS: Final = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
# Small enough for the arrays of one group to stay in the cache, and for a window to leave most of a
# segment unread.
GROUP_ROWS: Final = 1 << 16
_DICTIONARY_PAGE_BYTES: Final = 1 << 30  # never fall back to writing a string per row
_PATCHABLE: Final = frozenset(
    name for name, spec in COLUMNS.items() if spec.dictionary is None and spec.dtype is not np.float64
) - {"start"}

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


class TraceWriter:
    """Writes one trace into an existing, empty directory.

    Segments in order, flows and late patches whenever they are known, `finish`
    last. Not finishing leaves a directory without `meta.json`, which is no
    trace. Raises Exhausted when the disk does not take it, ValueError for rows
    out of order (a fault of the caller).
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._segments: list[SegmentInfo] = []
        self._rows = 0
        self._gpu_events = 0
        self._dictionaries: dict[str, Dictionary] = {}
        self._arg_names: dict[tuple[str, str], str] = {}
        self._flows = _FlowWriter(directory / FLOWS_FILE)
        self._late = _LateWriter(directory / LATE_FILE)

    @property
    def rows(self) -> int:
        """Rows written so far: the `first_row` of the next segment."""
        return self._rows

    def write_segment(self, table: EventTable) -> None:
        """Write the next segment; `table.first_row` must be `rows`, starts ascending. Empty: nothing."""
        if table.first_row != self._rows:
            raise ValueError(f"segment starts at row {table.first_row}, expected {self._rows}")
        self._dictionaries = table.dictionaries
        if len(table) == 0:
            return
        info = self._describe(table)
        path = self._directory / info.file
        with disk(path):
            self._write(path, table)
        self._segments.append(info)
        self._rows += len(table)
        self._gpu_events += int(np.isin(table.column("kind"), _GPU_KINDS).sum())

    def _describe(self, table: EventTable) -> SegmentInfo:
        start = table.columns["start"]
        last = self._segments[-1].start_ns if self._segments else None
        if bool((start[1:] < start[:-1]).any()) or (last is not None and int(start[0]) < last):
            raise ValueError("rows of a segment must be in start order")
        end = table.column("end")
        return SegmentInfo(
            file=segment_file(len(self._segments)),
            first_row=self._rows,
            rows=len(table),
            start_ns=int(start[0]),
            end_ns=max(int(start[-1]), int(end.max())),
            unended=int((end == NO_END).sum()),
        )

    def _write(self, path: Path, table: EventTable) -> None:
        try:
            self._write_as(path, table, pa.string())
        except UnicodeEncodeError:
            # Lone surrogates are not UTF-8. This segment's strings are kept as binary instead.
            self._write_as(path, table, pa.binary())

    def _write_as(self, path: Path, table: EventTable, text: pa.DataType) -> None:
        columns = [name for name, values in table.columns.items() if _any_present(COLUMNS[name], values)]
        args = [(key, arg) for key, arg in table.args.items() if len(arg.rows)]
        fields = [pa.field(name, column_type(COLUMNS[name], text)) for name in columns]
        fields += [_arg_field(self._arg_name(key), key, arg_type(key[1], text)) for key, _ in args]
        schema = pa.schema(fields)
        with pq.ParquetWriter(path, schema, **_options(schema)) as writer:
            for first in range(0, len(table), GROUP_ROWS):
                rows = min(GROUP_ROWS, len(table) - first)
                arrays = [
                    encode_column(
                        COLUMNS[name],
                        table.columns[name][first : first + rows],
                        table.dictionaries,
                        schema.field(at).type,
                    )
                    for at, name in enumerate(columns)
                ]
                arrays += [
                    encode_arg(arg, first, rows, schema.field(at).type)
                    for at, (_, arg) in enumerate(args, len(columns))
                ]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema), row_group_size=rows)

    def _arg_name(self, key: tuple[str, str]) -> str:
        """`arg.<key>`; the type is appended where a key comes with several."""
        name = self._arg_names.get(key)
        if name is None:
            taken = set(self._arg_names.values())
            name = f"arg.{key[0]}"
            while name in taken:
                name += f":{key[1]}"
            self._arg_names[key] = name
        return name

    def write_flows(self, flows: Flows, dictionaries: dict[str, Dictionary] | None = None) -> None:
        """Add flow records. Codes are those of `dictionaries`, or of the latest segment's."""
        self._flows.add(flows, self._dictionaries if dictionaries is None else dictionaries)

    def write_late(self, rows: Array, columns: dict[str, Array]) -> None:
        """Patch rows of segments that are already written; later patches win.

        Columns of integers only (self_time, parent, depth, linked, end …); an
        absent value is written as it is in memory and makes the cell absent.
        """
        unknown = columns.keys() - _PATCHABLE
        if unknown:
            raise ValueError(f"columns that cannot be patched: {sorted(unknown)}")
        for name, values in columns.items():
            self._late.add(rows, name, values)
        if "end" in columns:
            self._extend(rows, columns["end"])

    def _extend(self, rows: Array, ends: Array) -> None:
        firsts = np.array([info.first_row for info in self._segments], dtype=np.int64)
        where = np.searchsorted(firsts, rows, side="right") - 1
        for number in np.unique(where).tolist():
            info = self._segments[number]
            info.end_ns = max(info.end_ns, int(ends[where == number].max()))

    def finish(self, meta: TraceMeta) -> TraceMeta:
        """Close all files and write `meta.json`; returns `meta` with what the writer knows filled in."""
        self._late.close()
        self._flows.close()
        meta.segments = self._segments
        meta.events = self._rows
        meta.flows = self._flows.rows
        meta.late = self._late.cells
        meta.args = list(self._arg_names)
        if meta.gpu_events is None:
            meta.gpu_events = self._gpu_events
        if self._segments:
            meta.start_ns = self._segments[0].start_ns
            meta.end_ns = max(info.end_ns for info in self._segments)
        path = self._directory / META_FILE
        with disk(path):
            meta.bytes = sum(entry.stat().st_size for entry in self._directory.iterdir())
            path.write_bytes(encode_struct(meta))
        return meta


def _any_present(spec: Column, values: Array) -> bool:
    present = presence(spec, values)
    return present is None or bool(present.any())


def _arg_field(name: str, key: tuple[str, str], arrow: pa.DataType) -> pa.Field:
    # A key may hold lone surrogates, metadata is bytes.
    metadata = {"key": key[0].encode("utf-8", "surrogatepass"), "type": key[1]}
    printable = name.encode("utf-8", "replace").decode()
    return pa.field(printable, arrow, metadata=metadata)


def _encodings(schema: pa.Schema) -> tuple[dict[str, str], list[str]]:
    delta, dictionary = {}, []
    for field in schema:
        if field.type in _DELTA_TYPES and field.name not in _DICTIONARY_COLUMNS:
            delta[field.name] = "DELTA_BINARY_PACKED"
        else:
            dictionary.append(field.name)
    return delta, dictionary


def _options(schema: pa.Schema) -> dict[str, Any]:
    delta, dictionary = _encodings(schema)
    return {
        "compression": "zstd",
        "compression_level": 1,
        "column_encoding": delta or None,
        "use_dictionary": dictionary,
        "dictionary_pagesize_limit": _DICTIONARY_PAGE_BYTES,
        "write_statistics": [name for name in ("start", "end") if name in schema.names],
        "write_page_checksum": True,
    }


def _write_parquet(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path, row_group_size=len(table), **_options(table.schema))


def _words(words: list[str]) -> pa.Array:
    try:
        return text_array(words, pa.string())
    except UnicodeEncodeError:
        return text_array(words, pa.binary()).view(pa.string())


class _FlowWriter:
    """Gathers flow records into row groups: decoders yield a few at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: list[Flows] = []
        self._count = 0
        self._dictionaries: dict[str, Dictionary] = {}
        self._writer: pq.ParquetWriter | None = None
        self.rows = 0

    def add(self, flows: Flows, dictionaries: dict[str, Dictionary]) -> None:
        if len(flows.id) == 0:
            return
        self._dictionaries = dictionaries
        self._waiting.append(flows)
        self._count += len(flows.id)
        if self._count >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        arrays = [self._column(field) for field in FLOW_SCHEMA]
        with disk(self._path):
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._path, FLOW_SCHEMA, **_options(FLOW_SCHEMA))
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
        if self._count:
            self._flush()
        if self._writer is not None:
            with disk(self._path):
                self._writer.close()


class _LateWriter:
    """Patches as (row, column, value), kept until the trace is finished: they are few per segment."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parts: list[tuple[Array, str, Array]] = []
        self.cells = 0

    def add(self, rows: Array, column: str, values: Array) -> None:
        if len(rows):
            self.cells += len(rows)
            self._parts.append((np.array(rows, np.int64), column, np.array(values, np.int64)))

    def close(self) -> None:
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
            _write_parquet(self._path, pa.Table.from_arrays(arrays, schema=_LATE_SCHEMA))
