"""Key averages as columns: what is added up over the traces of a capture.

Times and sizes are decimals: what fits 64 bits in a trace need not in a thousand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from profd.errors import Exhausted
from profd.limits import CAPTURE_ROWS_MAX
from profd.query.averages import SORT_KEYS, Average, sort_field

# What tells two rows apart. Names may hold what is no Unicode, so texts are bytes.
_TEXTS: Final = ("name", "device_type", "input_shapes", "stack", "module")
_KEYS: Final = (*_TEXTS, "node_id", "annotation", "shadow")
SUMS: Final = tuple(
    field.name
    for field in fields(Average)
    if field.name == "count" or field.name.endswith(("_ns", "flops", "_memory_usage"))
)
_SUM: Final = pa.decimal128(38, 0)
_SCHEMA: Final = pa.schema(
    [
        *((name, pa.binary()) for name in _TEXTS),
        ("node_id", pa.int64()),
        *((name, pa.bool_()) for name in ("annotation", "shadow")),
        *((name, pa.int64()) for name in SUMS),
    ]
)


def columns_of(rows: Sequence[Average]) -> pa.Table:
    """The averages of one trace."""
    texts = {name: [_text(getattr(row, name)) for row in rows] for name in _TEXTS if name != "stack"}
    texts["stack"] = [None if row.stack is None else json.dumps(row.stack).encode("ascii") for row in rows]
    others = {name: [getattr(row, name) for row in rows] for name in _SCHEMA.names if name not in texts}
    return pa.table({**texts, **others}, _SCHEMA)


def _text(value: str | None) -> bytes | None:
    return None if value is None else value.encode("utf-8", "surrogatepass")


def merged(parts: Iterable[tuple[int, int | None, pa.Table]]) -> pa.Table:
    """Tables of `columns_of`, each with the number of its group and its rank, with equal rows of a group added up.

    Columns: `group`, those of a part, `ranks` (different ones), `traces`. Exhausted beyond CAPTURE_ROWS_MAX rows.
    """
    tables: list[pa.Table] = []
    rows = 0
    for number, (group, rank, part) in enumerate(parts):
        own = {"group": group, "rank": rank, "number": number}
        for name, value in own.items():
            part = part.append_column(name, pa.array([value] * len(part), pa.int64()))
        tables.append(part)
        rows += len(part)
        if rows > CAPTURE_ROWS_MAX:
            raise Exhausted(
                f"the traces have more than {CAPTURE_ROWS_MAX:,} rows together, the limit: group by less, or ask fewer "
                "of them"
            )
    if not tables:
        return _added_up(_with_origin(_SCHEMA.empty_table()))
    return _added_up(pa.concat_tables(tables))


def _with_origin(empty: pa.Table) -> pa.Table:
    for name in ("group", "rank", "number"):
        empty = empty.append_column(name, pa.array([], pa.int64()))
    return empty


def _added_up(table: pa.Table) -> pa.Table:
    for name in SUMS:
        table = table.set_column(table.schema.get_field_index(name), name, table.column(name).cast(_SUM))
    keys = ["group", *_KEYS]
    known = pc.ScalarAggregateOptions(min_count=1)  # nothing is known of any: null, not 0
    found = table.group_by(keys, use_threads=False).aggregate(
        [*((name, "sum", known) for name in SUMS), ("rank", "count_distinct"), ("number", "count_distinct")]
    )
    names = [*keys, *SUMS, "ranks", "traces"]
    by_name = {name: name for name in keys} | {f"{name}_sum": name for name in SUMS}
    by_name |= {"rank_count_distinct": "ranks", "number_count_distinct": "traces"}
    return found.rename_columns([by_name[name] for name in found.column_names]).select(names)


def ordered(table: pa.Table, key: str, limit: int) -> pa.Table:
    """By one of SORT_KEYS as `sort_averages` does it, at most so many rows; 0: all."""
    if key not in SORT_KEYS:
        raise ValueError(f"{key!r} is no key to sort by")
    order = [("name", "ascending"), ("device_type", "ascending"), ("group", "ascending")]
    if key != "name":
        column = pc.fill_null(table.column(sort_field(key)), pa.scalar(Decimal(0), _SUM))
        table = table.append_column("by", column)
        order.insert(0, ("by", "descending"))
    found = table.take(pc.sort_indices(table, order))
    return found.slice(0, limit) if limit else found


def as_json(table: pa.Table) -> list[dict[str, Any]]:
    """The rows as in `profctl top --json`, with `group`, `ranks` and `traces`."""
    return [_row(row) for row in table.to_pylist()]


def _row(row: dict[str, Any]) -> dict[str, Any]:
    texts = {name: None if row[name] is None else row[name].decode("utf-8", "surrogatepass") for name in _TEXTS}
    parsed = {name: json.loads(texts[name] or "null") for name in ("input_shapes", "stack")}
    numbers = {name: None if row[name] is None else int(row[name]) for name in (*SUMS, "node_id")}
    counts = {name: row[name] for name in ("group", "ranks", "traces")}
    given = {**texts, **parsed, **numbers}
    return {**{name: given[name] for name in Average.json_fields()}, **counts}
