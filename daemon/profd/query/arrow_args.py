"""Tables of `profctl sql` that are made only where a question names them: arguments and tensors."""

from __future__ import annotations

import json
from typing import Final

import numpy as np
import pyarrow as pa

from profd.derive.tensors import TENSOR_ARGS, TENSOR_COLUMNS, find_tensors
from profd.errors import Exhausted
from profd.events import ArgColumn
from profd.events.table import Array
from profd.limits import SQL_ARGS_MAX
from profd.query.part import numbers_of
from profd.query.whole import check_size
from profd.segments.columns import LIST_ARG
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
            if key.startswith("@"):
                continue  # members of records that are no arguments
            count += len(arg.rows)
            if count > SQL_ARGS_MAX:
                raise Exhausted(
                    f"there are more than {SQL_ARGS_MAX:,} arguments: ask about a step or a window (--step, --window)"
                )
            parts.append(_rows(key, arg, numbers))
    return pa.concat_tables(parts) if parts else _SCHEMA.empty_table()


def _rows(key: str, arg: ArgColumn, row_of: Array) -> pa.Table:
    rows, numbers = arg.rows, pa.nulls(len(arg.rows), pa.float64())
    if arg.type == LIST_ARG:
        rows, first = np.unique(arg.rows, return_index=True)
        texts = pa.array([json.dumps(some.tolist()) for some in np.split(arg.values, first[1:])], pa.string())
        numbers = pa.nulls(len(rows), pa.float64())
    elif arg.dictionary is not None:
        words = pa.array([_clean(word) for word in arg.dictionary.values], pa.string())
        texts = words.take(pa.array(arg.values))
    else:
        numbers = pa.array(arg.values.astype(np.float64))
        texts = pa.array(arg.values).cast(pa.string())
    keys = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(rows), dtype=np.int32)), pa.array([_clean(key)]))
    return pa.Table.from_arrays([pa.array(row_of[rows]), keys, texts, numbers], schema=_SCHEMA)


def tensors_arrow(reader: TraceReader) -> pa.Table:
    """One row per tensor among the inputs of an op, and per allocation or free, where the source recorded addresses.

    `row` of the event, `position` among the op's tensors (null: an allocation), `impl` and `storage`
    (addresses, null: not known), `tensor` (the same number for the same tensor, null: none).
    """
    check_size(len(reader), "export a --window of the trace, import that, and ask it")
    found = find_tensors(reader.read(TENSOR_COLUMNS, args=TENSOR_ARGS))
    return pa.table(
        {
            "row": pa.array(found.row),
            "position": pa.array(found.position, mask=found.position < 0),
            "impl": pa.array(found.impl, mask=found.impl == 0),
            "storage": pa.array(found.storage, mask=found.storage == 0),
            "tensor": pa.array(found.tensor, mask=found.tensor < 0),
        }
    )


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
