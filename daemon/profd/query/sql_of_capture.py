"""The question `sql` to a capture: the tables of all its traces, one after the other, with `rank`, `host` and `trace`.

A table is a stream: DuckDB reads it from the beginning whenever it needs it, and holds what it keeps of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from profd.errors import BadInput
from profd.limits import QUERY_ROWS_MAX, SQL_STREAM_SECONDS
from profd.model.text import encodable
from profd.query.arg_values import ArgColumns
from profd.query.arrow import Stream, events_arrow, events_schema
from profd.query.captured import Captured, Member
from profd.query.part import part_of_member
from profd.query.sql import answered
from profd.query.sql_names import Named, args_named, made, tables_named
from profd.segments.reader import TraceReader, Window

_AHEAD: Final = (
    QUERY_ROWS_MAX // 10
)  # events of traces that are read, or wait: a question may read a table several times
_WORD: Final = pa.dictionary(pa.int32(), pa.string())
_ORIGIN: Final = pa.schema([("rank", pa.int64()), ("host", _WORD), ("trace", _WORD)])


def sql_of_capture(
    capture: Captured, *, sql: str, limit: int = 0, seconds: float = SQL_STREAM_SECONDS, **part: Any
) -> Iterator[bytes]:
    """The answer of docs/json.md in pieces. Rows of several traces are told apart by `trace`.

    A window is counted from the first event of all. Raises as `sql` of a trace, and what the reader of one raises:
    through DuckDB that is a text with its traceback.
    """
    edges = capture.start_ns, capture.end_ns
    failed: list[Exception] = []

    def tables(connection: Any) -> Mapping[str, Any]:
        columns = Named.of(connection, sql).columns
        args = ArgColumns(args_named(sql), (member.open().meta.args for member in capture.members))

        def window(reader: TraceReader) -> Window | None:
            return part_of_member(reader, edges, **part).window

        def of(name: str) -> Stream:
            return _stream(capture, failed, lambda reader: made(name, reader, window(reader)))

        def events(reader: TraceReader) -> pa.Table:
            return events_arrow(reader, columns, window(reader), args)

        others = {name: of(name) for name in tables_named(sql)}
        return {**others, "events": _stream(capture, failed, events, events_schema(columns, args))}

    try:
        yield from answered(sql, limit, seconds, tables)
    except BadInput:
        if failed:
            raise failed[0] from None
        raise


def _stream(
    capture: Captured,
    failed: list[Exception],
    make: Callable[[TraceReader], pa.Table],
    known: pa.Schema | None = None,
) -> Stream:
    """A table of all traces; what ends it is put into `failed`.

    `known`: the schema of what `make` makes; None: that of the first trace, which is made to know it.
    """
    schema = pa.schema([*_ORIGIN, *(known if known is not None else make(capture.members[0].open()).schema)])

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            for member, table in capture.each(lambda member: make(member.open()), _AHEAD):
                for batch in table.to_batches():
                    columns = [*_origin(member, len(batch)), *batch.columns]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)
        except Exception as error:
            failed.append(error)
            raise

    return Stream(schema, batches)


def _origin(member: Member, rows: int) -> list[pa.Array]:
    rank = pa.nulls(rows, pa.int64()) if member.rank is None else pa.array(np.full(rows, member.rank, dtype=np.int64))
    return [rank, _same(member.host, rows), _same(member.trace, rows)]


def _same(text: str | None, rows: int) -> pa.Array:
    if text is None:
        return pa.nulls(rows, _WORD)
    word = pa.array([encodable(text)], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int32)), word)
