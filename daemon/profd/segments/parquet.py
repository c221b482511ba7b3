"""How our Parquet files are encoded."""

from __future__ import annotations

from collections.abc import Collection
from inspect import signature
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

Array = npt.NDArray[Any]

# Small enough for the arrays of a column to stay in the cache while they are encoded, and for a window to leave half of
# a segment unread; half as many rows cost 3 % more of storing and a tenth more of a window's export.
GROUP_ROWS: Final = 1 << 17
# Encodings that every engine reads (docs/decisions/0020-one-schema.md has what was measured, and what was not taken).
# Numbers of which a trace has few different ones. Deltas of all others.
_FEW: Final = frozenset(
    {"phase", "start_ps", "end_ps", "process", "thread", "end_thread", "device", "context"}
    | {"stream", "fwd_thread", "scope", "is_async", "cbid", "registers_per_thread", "shared_memory"}
    | {"occupancy_percent", "group_size", "record_function_id", "queued"}
)
_INTEGERS: Final = (pa.int64(), pa.int32())
_SPREAD_MAX: Final = 1 << 24
_BLOCK: Final = 128  # values, as Arrow writes deltas
_PAGE_BYTES: Final = 1 << 30  # a row group is a page
_ASCENDING: Final = "start"  # its deltas are small: no compression finds anything in them
_DICTIONARY_PAGE_BYTES: Final = 1 << 30  # never fall back to writing a string per row
# Newer releases of pyarrow end a page after 20,000 rows, too.
_ROWS_OF_PAGE: Final[dict[str, int]] = (
    {"max_rows_per_page": GROUP_ROWS} if "max_rows_per_page" in signature(pq.ParquetWriter).parameters else {}
)


def options(schema: pa.Schema, plain: Collection[str] = ()) -> dict[str, Any]:
    """Arguments of ParquetWriter for files of this schema; `plain`: columns of numbers that are no deltas."""
    encodings = {field.name: _encoding(field, field.name in plain) for field in schema}
    codecs = {field.name: _codec(field, field.name in plain) for field in schema}
    return {
        "compression": codecs,
        "compression_level": {path: 1 for path, codec in codecs.items() if codec == "zstd"},
        "column_encoding": {path: encoding for path, encoding in encodings.items() if encoding} or None,
        "use_dictionary": [path for path, encoding in encodings.items() if not encoding],
        "dictionary_pagesize_limit": _DICTIONARY_PAGE_BYTES,
        "data_page_size": _PAGE_BYTES,
        **_ROWS_OF_PAGE,
        "write_statistics": [name for name in ("start", "dur") if name in schema.names],
        "write_page_checksum": True,
        # Not in the file: Arrow's dictionary types, which engines over several files cannot unify.
        "store_schema": False,
    }


def deltas_are_safe(values: Array, absent: int | None) -> bool:
    """Whether every reader gets deltas of a column right, a row group a page.

    fastparquet 2026.9 does not (`cencoding.pyx`, `delta_binary_unpack`): differences of more than 24 bits come out
    wrong, without an error; and behind the last value of a page that has one value more than full blocks, it reads
    memory that is not its own.
    """
    for first in range(0, len(values), GROUP_ROWS):
        group = values[first : first + GROUP_ROWS]
        known = group if absent is None else group[group != absent]
        if not len(known) or len(known) % _BLOCK == 1 or _spread(known) >= _SPREAD_MAX:
            return False
    return True


def _spread(values: Array) -> int:
    """How far apart the differences of neighbours are, at most."""
    apart = int(values.max()) - int(values.min())
    if apart < _SPREAD_MAX // 2:
        return 0
    if apart >= 1 << 62:
        return apart  # differences might not fit into 64 bits
    deltas = np.diff(values)
    return int(deltas.max()) - int(deltas.min())


def _encoding(field: pa.Field, plain: bool) -> str | None:
    """None: a dictionary."""
    if field.type in _INTEGERS and field.name not in _FEW:
        return "PLAIN" if plain else "DELTA_BINARY_PACKED"
    return "PLAIN" if pa.types.is_floating(field.type) or pa.types.is_boolean(field.type) else None


def _codec(field: pa.Field, plain: bool) -> str:
    is_text = pa.types.is_string(field.type) or pa.types.is_dictionary(field.type)
    if is_text or plain:
        return "zstd"
    return "none" if field.name == _ASCENDING else "snappy"
