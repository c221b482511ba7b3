"""How our Parquet files are encoded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

# Small enough for the arrays of one row group to stay in the cache while they are encoded, and for a
# window to leave most of a segment unread.
GROUP_ROWS: Final = 1 << 16
# Times, ids and rows grow slowly from row to row. Parquet's own dictionary would hash every value first
# and then give up on them.
_DELTA_TYPES: Final = (pa.int64(),)
_FEW_VALUES: Final = frozenset({"device", "context", "stream", "fwd_thread", "weight"})
# Columns that most questions read are packed but not compressed: a file is 6 % larger, and these are read in
# half the time.
_HOT: Final = frozenset(
    {"start", "end", "kind", "phase", "thread", "device_type", "external", "correlation", "linked", "self_time"}
)
_FEW_WORDS: Final = 4096  # up to so many words a coded column may be hot, too: its strings are written once a group
_DICTIONARY_PAGE_BYTES: Final = 1 << 30  # never fall back to writing a string per row


def options(schema: pa.Schema, words: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Arguments of ParquetWriter for files of this schema; `words`: how many words its hot coded columns have."""
    hot = _HOT | {name for name, count in (words or {}).items() if count <= _FEW_WORDS}
    delta = {
        field.name: "DELTA_BINARY_PACKED"
        for field in schema
        if field.type in _DELTA_TYPES and field.name not in _FEW_VALUES
    }
    # Parquet knows a list by its values.
    paths = [f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name for field in schema]
    return {
        "compression": {path: "none" if path in hot else "zstd" for path in paths},
        "compression_level": {path: 1 for path in paths if path not in hot} or None,
        "column_encoding": delta or None,
        "use_dictionary": [path for path in paths if path not in delta],
        "dictionary_pagesize_limit": _DICTIONARY_PAGE_BYTES,
        "write_statistics": [name for name in ("start", "end") if name in schema.names],
        "write_page_checksum": True,
    }


def write_table(path: Path, table: pa.Table) -> None:
    """A small table as one row group. Raises OSError."""
    pq.write_table(table, path, row_group_size=max(1, len(table)), **options(table.schema))
