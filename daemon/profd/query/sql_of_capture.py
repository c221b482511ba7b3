"""The question `sql` to a capture: the tables of all its traces, one after the other, with `rank`, `host` and `trace`.

A table is a stream: DuckDB reads it from the beginning whenever it needs it, and holds what it keeps of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from profd.errors import BadInput
from profd.limits import QUERY_ROWS_MAX, SQL_CAPTURE_SECONDS
from profd.query.arrow import EVENTS_SCHEMA, TABLES, events_arrow
from profd.query.arrow_args import named_in
from profd.query.captured import Captured, Member
from profd.query.sql import answered
from profd.segments.reader import TraceReader

_AHEAD: Final = (
    QUERY_ROWS_MAX // 10
)  # events of traces that are read, or wait: a question may read a table several times
_WORD: Final = pa.dictionary(pa.int32(), pa.string())
_ORIGIN: Final = pa.schema([("rank", pa.int64()), ("host", _WORD), ("trace", _WORD)])


def sql_of_capture(
    capture: Captured, *, sql: str, limit: int = 0, seconds: float = SQL_CAPTURE_SECONDS
) -> Iterator[bytes]:
    """The answer of docs/json.md in pieces. Rows of several traces are told apart by `trace`.

    Raises as `sql` of a trace, and what the reader of one raises: through DuckDB that is a text with its traceback.
    """
    failed: list[Exception] = []

    def tables(connection: Any) -> Mapping[str, Any]:
        columns = _named(connection, sql)
        some = [name for name in EVENTS_SCHEMA.names if columns is None or name.lower() in columns] or ["row"]
        streams = {name: _Stream(capture, failed, table) for name, table in _tables_of(sql).items() if name != "events"}
        return streams | {"events": _Stream(capture, failed, lambda reader: events_arrow(reader, some), _events(some))}

    try:
        yield from answered(sql, limit, seconds, tables)
    except BadInput:
        if failed:
            raise failed[0] from None
        raise


def _tables_of(sql: str) -> dict[str, Callable[[TraceReader], pa.Table]]:
    """Those that a question may name: each is made of the first trace, to know what it is like."""
    words = set(re.findall(r"\w+", sql.lower()))
    return {name: table for name, table in (TABLES | named_in(sql)).items() if name in words or "query" in words}


def _events(columns: Collection[str]) -> pa.Schema:
    return pa.schema([field for field in EVENTS_SCHEMA if field.name in columns])


class _Stream:
    """A table of all traces, as often as it is asked for (Arrow's PyCapsule interface)."""

    def __init__(
        self,
        capture: Captured,
        failed: list[Exception],
        make: Callable[[TraceReader], pa.Table],
        schema: pa.Schema | None = None,
    ) -> None:
        """`failed`: where it puts what ends it.

        `schema`: of what `make` makes; None: that of the first trace, which is made to know it.
        """
        self._capture = capture
        self._failed = failed
        self._make = make
        known = schema if schema is not None else make(capture.members[0].open()).schema
        self._schema = pa.schema([*_ORIGIN, *known])

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._read()
        except Exception as error:
            self._failed.append(error)
            raise

    def _read(self) -> Iterator[pa.RecordBatch]:
        for member, table in self._capture.each(lambda member: self._make(member.open()), _AHEAD):
            for batch in table.to_batches():
                columns = [*_origin(member, len(batch)), *batch.columns]
                yield pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _origin(member: Member, rows: int) -> list[pa.Array]:
    rank = pa.nulls(rows, pa.int64()) if member.rank is None else pa.array(np.full(rows, member.rank, dtype=np.int64))
    return [rank, _same(member.host, rows), _same(member.trace, rows)]


def _same(text: str | None, rows: int) -> pa.Array:
    if text is None:
        return pa.nulls(rows, _WORD)
    word = pa.array([text.encode("utf-8", "replace").decode()], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int32)), word)


def _named(connection: Any, sql: str) -> set[str] | None:
    """Every word in the place of a name in a question, in lower case, and more; None: all columns may be needed."""
    try:
        tree = json.loads(connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()[0][0])
    except (duckdb.Error, RecursionError):
        return None
    words: set[str] = set()
    tables: set[str] = set()
    alone: set[str] = set()  # names that may be those of a whole row
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if tree.get("error") or _takes_all(node):
                return None
            if node.get("type") == "BASE_TABLE":
                tables |= {str(node.get("alias")).lower(), str(node.get("table_name")).lower()}
            names = node.get("column_names")
            if isinstance(names, list) and len(names) == 1:
                alone.add(str(names[0]).lower())
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
        elif isinstance(node, str):
            words.add(node.lower())
    return None if tables & alone else words


def _takes_all(node: Mapping[str, Any]) -> bool:
    """`*`, COLUMNS(…), a join by all common names, a pivot, which groups by all that is left, and SQL in a text."""
    kinds = (node.get("class"), node.get("type"), node.get("ref_type"), node.get("function_name"))
    return not {"STAR", "PIVOT", "SHOW_REF", "NATURAL", "query"}.isdisjoint(map(str, kinds))
