"""How our Parquet files are encoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

# Small enough for the arrays of a column to stay in the cache while they are encoded, and for a window to leave half of
# a segment unread; half as many rows cost 3 % more of storing and a tenth more of a window's export.
GROUP_ROWS: Final = 1 << 17
# Numbers differ little from row to row: their bytes apart (all the lowest ones, then all the second ones …) repeat
# themselves, which LZ4 finds as fast as it copies. Parquet's deltas and dictionaries take twice the time to write,
# zstd on top of them twice the time to read; files are a tenth larger or smaller, by what is in them.
_SPLIT: Final = (pa.int64(), pa.int32(), pa.uint16(), pa.uint8())
_ASCENDING: Final = "start"  # all but sorted: deltas are smaller, as fast, and need no compression
_DICTIONARY_PAGE_BYTES: Final = 1 << 30  # never fall back to writing a string per row


def options(schema: pa.Schema) -> dict[str, Any]:
    """Arguments of ParquetWriter for files of this schema."""
    encodings = {_path(field): "BYTE_STREAM_SPLIT" for field in schema if _items(field) in _SPLIT}
    if _ASCENDING in encodings:
        encodings[_ASCENDING] = "DELTA_BINARY_PACKED"
    paths = [_path(field) for field in schema]
    return {
        "compression": {path: "none" if path == _ASCENDING else "lz4" for path in paths},
        "column_encoding": encodings or None,
        "use_dictionary": [path for path in paths if path not in encodings],
        "dictionary_pagesize_limit": _DICTIONARY_PAGE_BYTES,
        "write_statistics": [name for name in ("start", "end") if name in schema.names],
        "write_page_checksum": True,
    }


def _path(field: pa.Field) -> str:
    """Parquet knows a list by its values."""
    return f"{field.name}.list.element" if pa.types.is_list(field.type) else str(field.name)


def _items(field: pa.Field) -> pa.DataType:
    return field.type.value_type if pa.types.is_list(field.type) else field.type


def write_table(path: Path, table: pa.Table) -> None:
    """A small table as one row group. Raises OSError."""
    pq.write_table(table, path, row_group_size=max(1, len(table)), **options(table.schema))
