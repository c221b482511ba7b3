"""One segment as a Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from profd.disk.files import disk
from profd.events import COLUMNS, ArgColumn, EventTable
from profd.segments import parquet
from profd.segments.columns import LIST_ARG, Presence, arg_type, column_type, encode_arg, encode_column, presence

Array = npt.NDArray[Any]


class ArgNames:
    """The column names of arguments, the same in all segments of a trace.

    `arg.<key>`; the type is appended where a key comes with several. List columns
    of the schema have their own names. The true key is in the column's metadata:
    names are for people and other engines.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set()

    def of(self, key: str, kind: str) -> str:
        """The name of a column."""
        name = self._names.get((key, kind))
        if name is None:
            name = key if kind == LIST_ARG else f"arg.{key}".encode("utf-8", "replace").decode()
            while name in self._taken:
                name += f":{kind}"
            self._taken.add(name)
            self._names[key, kind] = name
        return name

    def keys(self) -> list[tuple[str, str]]:
        """(key, type) in order of first use."""
        return list(self._names)


def write_segment_file(path: Path, table: EventTable, names: ArgNames) -> None:
    """Write a table that is not empty. Columns that are absent in every row are left out. Raises Exhausted."""
    with disk(path):
        try:
            _write(path, table, names, pa.string())
        except UnicodeEncodeError:
            # Lone surrogates are not UTF-8. This segment's strings are kept as binary instead.
            _write(path, table, names, pa.binary())


def _write(path: Path, table: EventTable, names: ArgNames, text: pa.DataType) -> None:
    present = {name: presence(COLUMNS[name], values) for name, values in table.columns.items()}
    columns = [(name, values) for name, values in table.columns.items() if present[name] is not Presence.NOWHERE]
    args = [(key, arg) for key, arg in table.args.items() if len(arg.rows)]
    # A column without nulls says so: its rows need no marks.
    fields = [
        pa.field(name, column_type(COLUMNS[name], text), nullable=present[name] is not Presence.EVERYWHERE)
        for name, _ in columns
    ]
    fields += [_arg_field(names.of(*key), key, arg_type(key[1], text)) for key, _ in args]
    schema = pa.schema(fields)
    with pq.ParquetWriter(path, schema, **parquet.options(schema)) as writer:
        for first in range(0, len(table), parquet.GROUP_ROWS):
            rows = min(parquet.GROUP_ROWS, len(table) - first)
            arrays = _group(table, columns, args, fields, first, rows)
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema), row_group_size=rows)


def _group(
    table: EventTable,
    columns: list[tuple[str, Array]],
    args: list[tuple[tuple[str, str], ArgColumn]],
    fields: list[pa.Field],
    first: int,
    rows: int,
) -> list[pa.Array]:
    plain = [
        encode_column(COLUMNS[name], values[first : first + rows], table.dictionaries, field.type, not field.nullable)
        for (name, values), field in zip(columns, fields, strict=False)
    ]
    types = [field.type for field in fields[len(columns) :]]
    sparse = [encode_arg(arg, first, rows, arrow) for (_, arg), arrow in zip(args, types, strict=True)]
    return plain + sparse


def _arg_field(name: str, key: tuple[str, str], arrow: pa.DataType) -> pa.Field:
    # A key may hold lone surrogates; metadata is bytes.
    metadata = {"key": key[0].encode("utf-8", "surrogatepass"), "type": key[1]}
    return pa.field(name, arrow, metadata=metadata)
