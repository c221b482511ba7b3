"""Key averages as columns: what is added up over the traces of a capture.

Times and sizes are decimals: what fits 64 bits in a trace need not in a thousand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profd.errors import Exhausted
from profd.limits import CAPTURE_ROWS_MAX
from profd.query.averages import DEVICE_LABELS, SORT_KEYS, Average, int_flops, sort_field
from profd.query.stored_sums import StoredSums
from profd.segments import plain_json
from profd.segments.rollups import Rollups

# What tells two rows apart. Names may hold what is no Unicode, so texts are bytes.
_TEXTS: Final = ("name", "device_type", "input_shapes", "stack", "module")
_KEYS: Final = (*_TEXTS, "node_id", "annotation", "shadow")
SUMS: Final = tuple(
    field.name
    for field in fields(Average)
    if field.name in ("count", "looks") or field.name.endswith(("_ns", "flops", "_memory_usage"))
)
_GIVEN: Final = (
    *("name", "device_type", "annotation", "shadow", "count", "cpu_time_total_ns", "self_cpu_time_total_ns"),
    *("device_time_total_ns", "self_device_time_total_ns"),
)  # of every row
_SUM: Final = pa.decimal128(38, 0)
SCHEMA: Final = pa.schema(
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
    others = {name: [getattr(row, name) for row in rows] for name in SCHEMA.names if name not in texts}
    return pa.table({**texts, **others}, SCHEMA)


def columns_of_sums(sums: StoredSums) -> pa.Table:
    """The averages of one trace by name."""
    labels = [DEVICE_LABELS.get(of_group, "other").encode() for of_group in sums.device_type.tolist()]
    given: dict[str, Any] = {
        "name": [_text(name) for name in sums.names],
        "device_type": labels,
        "annotation": sums.annotation,
        "shadow": sums.shadow,
        "count": sums.count,
        "cpu_time_total_ns": sums.cpu,
        "self_cpu_time_total_ns": sums.self_cpu,
        "device_time_total_ns": sums.device,
        "self_device_time_total_ns": sums.self_device,
    }
    if sums.flops is not None:
        given["flops"] = [int_flops(each) for each in sums.flops.tolist()]
    # Pyarrow lets go of the GIL in each call, and a second thread makes each of them wait: few calls.
    columns = [
        _nulls(len(labels), field.type) if field.name not in given else pa.array(given[field.name], field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


@lru_cache(maxsize=64)  # the traces of a capture have as many rows, nearly
def _nulls(rows: int, kind: pa.DataType) -> pa.Array:
    return pa.nulls(rows, kind)


def kept_table(rollups: Rollups, name: str) -> pa.Table | None:
    """What was kept of `columns_of`, for rows without shapes and stacks; None where it cannot be right."""
    table = rollups.table(name, SCHEMA)
    if table is None or any(table.column(given).null_count for given in _GIVEN):
        return None
    if any(table.column(absent).null_count < len(table) for absent in ("input_shapes", "stack")):
        return None
    return table if all(map(_is_text, (table.column(name) for name in ("name", "device_type", "module")))) else None


def _is_text(column: pa.ChunkedArray) -> bool:
    """Whether all of it can be decoded."""
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:  # some of it is no Unicode, and need not be
        try:
            b"\n".join(column.drop_null().to_pylist()).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return False
    return True


def rows_of(table: pa.Table) -> list[Average]:
    """The inverse of `columns_of`, but for `top_level`, which only reports of a whole trace ask for."""
    return [Average(**{name: _value_of(name, value) for name, value in row.items()}) for row in table.to_pylist()]


def _value_of(name: str, value: Any) -> Any:
    if value is None or name not in _TEXTS:
        return value
    text = value.decode("utf-8", "surrogatepass")
    return json.loads(text) if name == "stack" else text


def _text(value: str | None) -> bytes | None:
    return None if value is None else value.encode("utf-8", "surrogatepass")


def merged(parts: Iterable[tuple[int, int | None, pa.Table]]) -> pa.Table:
    """Tables of `columns_of`, each with the number of its group and its rank, with equal rows of a group added up.

    Columns: `group`, those of a part, `ranks` (different ones), `traces`. Exhausted beyond CAPTURE_ROWS_MAX rows.
    """
    tables: list[pa.Table] = []
    origins: list[tuple[int, int | None]] = []
    rows = 0
    for group, rank, part in parts:
        origins.append((group, rank))
        tables.append(part)
        rows += len(part)
        if rows > CAPTURE_ROWS_MAX:
            raise Exhausted(
                f"the traces have more than {CAPTURE_ROWS_MAX:,} rows together, the limit: group by less, or ask fewer "
                "of them"
            )
    table = pa.concat_tables(tables) if tables else SCHEMA.empty_table()
    number = np.repeat(np.arange(len(tables)), [len(part) for part in tables])
    groups, ranks = ([origin[at] for origin in origins] for at in (0, 1))
    for name, values in (("group", groups), ("rank", ranks), ("number", range(len(tables)))):
        table = table.append_column(name, pa.array(values, pa.int64()).take(pa.array(number, pa.int64())))
    return _added_up(table.combine_chunks())


def _added_up(table: pa.Table) -> pa.Table:
    keys = ["group", *_KEYS]
    # Most traces have no shapes, stacks, memory …: what is null throughout tells nothing apart, and has no sum.
    held = [name for name in table.column_names if table.column(name).null_count < len(table) or name == "group"]
    sums = [name for name in SUMS if name in held]
    for name in sums:
        table = table.set_column(table.schema.get_field_index(name), name, table.column(name).cast(_SUM))
    known = pc.ScalarAggregateOptions(min_count=1)  # nothing is known of any: null, not 0
    found = table.group_by([name for name in keys if name in held], use_threads=False).aggregate(
        [*((name, "sum", known) for name in sums), ("rank", "count_distinct"), ("number", "count_distinct")]
    )
    for name in (*keys, *SUMS):
        if name not in held:
            column, kind = (name, SCHEMA.field(name).type) if name in keys else (f"{name}_sum", _SUM)
            found = found.append_column(column, pa.nulls(len(found), kind))
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
    parsed = {name: plain_json.loads(texts[name] or "null") for name in ("input_shapes", "stack")}
    numbers = {name: None if row[name] is None else int(row[name]) for name in (*SUMS, "node_id")}
    counts = {name: row[name] for name in ("group", "ranks", "traces")}
    given = {**texts, **parsed, **numbers}
    return {**{name: given[name] for name in Average.json_fields()}, **counts}
