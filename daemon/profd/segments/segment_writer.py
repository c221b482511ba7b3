"""One segment as a Parquet file: all columns of the contract, whatever the trace has."""

from __future__ import annotations

import io
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from profd.disk.files import disk
from profd.events import COLUMNS, NO_END, EventTable
from profd.segments import parquet
from profd.segments.columns import LIST_ARG, Presence, encode_arg, encode_column, presence
from profd.segments.contract import ARGS, CORE_ARGS, DURATION, FIELDS, SCHEMA, VERSION, VERSION_KEY, Field
from profd.segments.footer import Footer, Leaf, absent_column, absent_page, columns_of, rows_of, set_columns
from profd.segments.json_args import encode_args, encode_ints

Array = npt.NDArray[Any]


def held(table: EventTable) -> list[str]:
    """The columns of the contract that a table has a value in."""
    args = {CORE_ARGS.get(key, ARGS) for key, arg in table.args.items() if len(arg.rows)}
    return [name for name, field in FIELDS.items() if name in args or _has(table, field)]


def _has(table: EventTable, field: Field) -> bool:
    if field.column is None:
        return False
    values = table.columns.get(field.column)
    return values is not None and presence(COLUMNS[field.column], values) is not Presence.NOWHERE


def write_segment_file(path: Path, table: EventTable, names: list[str]) -> None:
    """Write a table that is not empty and has values in these columns. Raises Exhausted."""
    fields = [field for name, field in FIELDS.items() if name in names or not field.nullable]
    schema = pa.schema([field.written for field in fields])
    durations = _durations(table) if DURATION in names else None
    plain = [
        field.name for field in fields if pa.types.is_integer(field.type) and not _are_deltas(table, field, durations)
    ]
    with disk(path):
        with pq.ParquetWriter(path, schema, **parquet.options(schema, plain)) as writer:
            writer.add_key_value_metadata({VERSION_KEY: str(VERSION)})
            for first in range(0, len(table), parquet.GROUP_ROWS):
                rows = min(parquet.GROUP_ROWS, len(table) - first)
                arrays = [_encoded(table, field, first, rows, durations) for field in fields]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema), row_group_size=rows)
        _add_absent(path)


def _durations(table: EventTable) -> Array:
    end = table.columns["end"]
    return np.where(end == NO_END, NO_END, end - table.columns["start"])


def _are_deltas(table: EventTable, field: Field, durations: Array | None) -> bool:
    if field.arg is None:
        return parquet.deltas_are_safe(_values(table, field, durations), _absent(field))
    arg = table.args[field.arg]
    edges = np.searchsorted(arg.rows, range(0, len(table) + parquet.GROUP_ROWS, parquet.GROUP_ROWS))
    return all(low < high and parquet.deltas_are_safe(arg.values[low:high], None) for low, high in pairwise(edges))


def _absent(field: Field) -> int | None:
    absent = COLUMNS[field.column or field.name].absent
    return None if absent is None else int(absent)


def _values(table: EventTable, field: Field, durations: Array | None) -> Array:
    if field.name == DURATION and durations is not None:
        return durations
    return table.column(field.column or field.name)


def _encoded(table: EventTable, field: Field, first: int, rows: int, durations: Array | None) -> pa.Array:
    if field.arg is not None and field.arg[1] == LIST_ARG:
        return encode_ints(table.args[field.arg], first, rows)
    if field.arg is not None:
        return encode_arg(table.args[field.arg], first, rows, field.written.type)
    if field.column is None:
        others = {key: arg for key, arg in table.args.items() if key not in CORE_ARGS}
        return encode_args(others, first, rows)
    part = _values(table, field, durations)[first : first + rows]
    return encode_column(COLUMNS[field.column], part, table.dictionaries, field.type, not field.nullable)


def encode_one(values: Array, name: str) -> bytes:
    """A column of integers of one row group, as the only one of a file."""
    field = FIELDS[name]
    schema = pa.schema([field.written])
    array = encode_column(COLUMNS[field.column or name], values, {}, field.type, not field.nullable)
    plain = [] if parquet.deltas_are_safe(values, _absent(field)) else [name]
    out = io.BytesIO()
    with pq.ParquetWriter(out, schema, **parquet.options(schema, plain)) as writer:
        writer.write_table(pa.Table.from_arrays([array], schema=schema), row_group_size=len(values))
    return out.getvalue()


@cache
def _whole_schema() -> tuple[Footer, list[Leaf]]:
    """The footer of a file that has all columns, and no rows; these columns."""
    out = io.BytesIO()
    pq.write_table(SCHEMA.empty_table(), out, **parquet.options(SCHEMA))
    footer, _ = Footer.of(out)
    return footer, footer.leaves


def _add_absent(path: Path) -> None:
    """Give a file the columns it lacks, without values, in the order of the contract."""
    whole, leaves = _whole_schema()
    with path.open("r+b") as file:
        footer, end = Footer.of(file)
        given = {leaf.name for leaf in footer.leaves}
        pages = []
        at = end
        for group in footer.groups:
            rows, begin, columns = rows_of(group), at, iter(columns_of(group))
            page = absent_page(rows)
            complete = []
            for leaf in leaves:
                if leaf.name in given:
                    complete.append(next(columns))
                    continue
                complete.append(absent_column(leaf, rows, page, at))
                pages.append(page)
                at += len(page)
            set_columns(group, complete, unpacked=at - begin, packed=at - begin)
        footer.described_as(whole)
        file.seek(end)
        file.truncate()
        file.writelines([*pages, footer.encode()])
