"""Tables of `profctl sql` that are made only where a question names them: arguments and tensors."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from profd.errors import Exhausted
from profd.events.table import Array
from profd.limits import SQL_ARGS_MAX
from profd.query.arg_values import TOO_MANY, Values, values_of
from profd.query.counted import tensors_of
from profd.query.part import numbers_of
from profd.segments.reader import TraceReader, Window

_SCHEMA: Final = pa.schema(
    [
        ("row", pa.int64()),
        ("key", pa.dictionary(pa.int32(), pa.string())),
        ("value", pa.string()),
        ("number", pa.float64()),
    ]
)


def args_arrow(reader: TraceReader, window: Window | None = None) -> pa.Table:
    """One row per argument: `row` of the event, `key`, `value` (text as it is, all else as JSON), `number` or null.

    `window`: only of events with a part in it. Exhausted for more than can be held at once.
    """
    parts: list[pa.Table] = []
    count = 0
    for table in reader.iterate(["start"], window=window):
        numbers = numbers_of(table)
        for (key, _), arg in table.args.items():
            values = values_of(key, arg)
            if values is None:
                continue
            count += len(values.rows)
            if count > SQL_ARGS_MAX:
                raise Exhausted(TOO_MANY)
            parts.append(_rows(values, numbers))
    return pa.concat_tables(parts) if parts else _SCHEMA.empty_table()


def _rows(values: Values, row_of: Array) -> pa.Table:
    columns = [pa.array(row_of[values.rows]), values.keys, values.texts, values.numbers]
    return pa.Table.from_arrays(columns, schema=_SCHEMA)


def tensors_arrow(reader: TraceReader) -> pa.Table:
    """One row per tensor among the inputs of an op, and per allocation or free, where the source recorded addresses.

    `row` of the event, `position` among the op's tensors (null: an allocation), `impl` and `storage`
    (addresses, null: not known), `tensor` (the same number for the same tensor, null: none). Exhausted for too many.
    """
    rows, found = tensors_of(reader)
    return pa.table(
        {
            "row": pa.array(rows[found.row]),
            "position": pa.array(found.position, mask=found.position < 0),
            "impl": pa.array(found.impl, mask=found.impl == 0),
            "storage": pa.array(found.storage, mask=found.storage == 0),
            "tensor": pa.array(found.tensor, mask=found.tensor < 0),
        }
    )
