"""The columns of every segment: their names, their Parquet types, and what of a table they hold (docs/store.md).

Every segment has all of them, in this order; what a trace does not have is null. Types are those that every engine
reads alike: no integers below 32 bits, no lists of lists, no dictionaries as types of Arrow's. Names are lower case
with no dots and no spaces: some engines know no case, some want quotes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from profd.events import COLUMNS, LISTS

VERSION_KEY: Final = b"profd.segment"  # in the metadata of the file
VERSION: Final = 2
ARGS: Final = "args"  # JSON: the arguments that have no column
DURATION: Final = "dur"  # in the place of `end`: small numbers, that may be summed
_NEVER_NULL: Final = ("kind", "start", "device_type", "depth")
# What differs from row to row, or is asked for: the others repeat themselves, and are short as JSON.
_ARGS: Final[dict[tuple[str, str], str]] = {
    ("Ev Idx", "int"): "ev_idx",
    ("Profiler Event Index", "int"): "profiler_event_index",
    ("Record function id", "int"): "record_function_id",
    ("Python id", "int"): "python_id",
    ("Python parent id", "int"): "python_parent_id",
    ("cbid", "int"): "cbid",
    ("grid", "json"): "grid",
    ("block", "json"): "block",
    ("registers per thread", "int"): "registers_per_thread",
    ("shared memory", "int"): "shared_memory",
    ("est. achieved occupancy %", "int"): "occupancy_percent",
    ("blocks per SM", "float"): "blocks_per_sm",
    ("warps per SM", "float"): "warps_per_sm",
    ("queued", "int"): "queued",
    ("memory bandwidth (GB/s)", "float"): "bandwidth_gb_s",
    ("Collective name", "str"): "collective",
    ("Process Group Name", "str"): "process_group",
    ("Process Group Ranks", "str"): "process_group_ranks",
    ("Group size", "int"): "group_size",
    ("Seq", "int"): "collective_sequence",
    ("dtype", "str"): "dtype",
    ("In msg nelems", "int"): "in_elements",
    ("Out msg nelems", "int"): "out_elements",
    **{(name, "ints"): name for name in LISTS},
}
_ARG_TYPES: Final = {
    "int": pa.int64(),
    "float": pa.float64(),
    "str": pa.string(),
    "json": pa.string(),
    "ints": pa.string(),  # "[1,2]": engines do not agree on a list that is null
}


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a segment."""

    name: str
    type: pa.DataType
    column: str | None = None  # of a table
    arg: tuple[str, str] | None = None  # or an argument: its key and type
    nullable: bool = True

    @property
    def written(self) -> pa.Field:
        """How it is handed to the writer: text as codes and a dictionary."""
        kind = pa.dictionary(pa.int32(), pa.string()) if self.is_coded else self.type
        return pa.field(self.name, kind, nullable=self.nullable)

    @property
    def is_coded(self) -> bool:
        """Whether a table has codes of a dictionary of it. JSON of numbers is made for each row."""
        is_made = self.name == ARGS or (self.arg is not None and self.arg[1] == "ints")
        return bool(pa.types.is_string(self.type)) and not is_made


def _type(name: str) -> pa.DataType:
    if COLUMNS[name].dictionary is not None:
        return pa.string()
    small = np.dtype(COLUMNS[name].dtype).itemsize < 4
    return pa.int32() if small else pa.from_numpy_dtype(COLUMNS[name].dtype)


def _fields() -> list[Field]:
    fields = [
        Field(DURATION if name == "end" else name, _type(name), column=name, nullable=name not in _NEVER_NULL)
        for name in COLUMNS
    ]
    fields += [Field(name, _ARG_TYPES[key[1]], arg=key) for key, name in _ARGS.items()]
    return [*fields, Field(ARGS, pa.string())]


FIELDS: Final[dict[str, Field]] = {field.name: field for field in _fields()}
SCHEMA: Final = pa.schema([pa.field(field.name, field.type, nullable=field.nullable) for field in FIELDS.values()])
TEXTS: Final = [field.name for field in FIELDS.values() if pa.types.is_string(field.type)]
CORE_ARGS: Final = _ARGS  # (key, type) -> column
