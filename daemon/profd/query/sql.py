"""The question `sql`: one in SQL to one trace, by DuckDB.

DuckDB sees Arrow tables that we read and nothing else: no files, no databases,
no extensions, no variables of this program, and its configuration is locked
before it sees the question. `limits.py` has the bounds of a question. The worker is
confined besides (workers/confine.py): this is the inner of two walls.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import duckdb

from profd.errors import BadInput, Denied, Exhausted
from profd.limits import (
    QUERY_ROWS_MAX,
    SQL_MEMORY_BYTES,
    SQL_RESULT_BYTES_MAX,
    SQL_ROWS_MAX,
    SQL_SECONDS,
    SQL_STREAM_SECONDS,
    SQL_VALUES_PER_SECOND,
    MiB,
)
from profd.query.arg_values import ArgColumns
from profd.query.arrow import events_arrow, events_stream
from profd.query.part import part_of
from profd.query.sql_names import Named, args_named, made, tables_named
from profd.segments.reader import TraceReader

_CONFIG: Final[dict[str, Any]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",  # else a table name finds Python variables
    "temp_directory": "",  # nothing is spilled: what does not fit is refused
    "memory_limit": f"{SQL_MEMORY_BYTES // MiB}MiB",
    "threads": "1",  # a worker is one job on one core
}
_QUESTIONS: Final = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
_ROWS_AT_ONCE: Final = 1024
_INTERRUPT_SECONDS: Final = 0.1
_MESSAGE_CHARS_MAX: Final = 2000


def sql(trace: TraceReader, *, sql: str, limit: int = 0, seconds: float | None = None, **part: Any) -> Iterator[bytes]:
    """The answer of docs/json.md in pieces; limit 0: SQL_ROWS_MAX. `part`: arguments of a window or of steps.

    `events` has those with a part in it. Where more may be in it than can be held at once, DuckDB reads them as it
    goes. Raises BadInput for what is no single question or is wrong, Denied for what reaches beyond the trace,
    Exhausted for what needs too much memory, time or room.
    """
    window = part_of(trace, **part).window
    rows = trace.rows_at_most(window)
    large = rows > QUERY_ROWS_MAX
    long = SQL_STREAM_SECONDS if large else SQL_SECONDS

    def tables(connection: Any) -> Mapping[str, Any]:
        others = {name: made(name, trace, window) for name in tables_named(sql)}
        named, args = Named.of(connection, sql), ArgColumns(args_named(sql), [trace.meta.args])
        if large:
            _check_reading(rows, named)
            return others | {"events": events_stream(trace, named.columns, window, args)}
        return others | {"events": events_arrow(trace, named.columns, window, args)}

    yield from answered(sql, limit, long if seconds is None else seconds, tables)


def _check_reading(rows: int, named: Named) -> None:
    """Exhausted where to read them would take too long."""
    values = rows * len(named.columns) * named.times
    if not named.few and values > SQL_VALUES_PER_SECOND * SQL_SECONDS:
        raise Exhausted(
            f"the question reads {len(named.columns)} columns of {rows:,} events, about "
            f"{values / SQL_VALUES_PER_SECOND:,.0f} s, and {SQL_SECONDS:g} s is the limit: ask about a step or a "
            "window (--step, --window), name fewer columns, or end it with LIMIT and without ORDER BY"
        )


def answered(sql: str, limit: int, seconds: float, tables: Callable[[Any], Mapping[str, Any]]) -> Iterator[bytes]:
    """The same of any tables, by name: Arrow's, or streams of it. `tables` is called with DuckDB's connection."""
    if not sql.strip():
        raise BadInput('say what to ask, like "select name, count(*) from events group by name"')
    with _errors(seconds), duckdb.connect(":memory:", config=_CONFIG) as connection:
        _check_question(connection, sql)
        for name, table in tables(connection).items():
            connection.register(name, table)
        connection.execute("SET lock_configuration = true")
        with _time_limit(connection, seconds):
            yield from _answer(connection.execute(sql), limit or SQL_ROWS_MAX)


def _check_question(connection: Any, text: str) -> None:
    statements = connection.extract_statements(text)
    if len(statements) != 1 or statements[0].type not in _QUESTIONS:
        raise BadInput(
            "ask one question: a single SELECT, FROM, WITH, DESCRIBE, SUMMARIZE or EXPLAIN; traces are read-only"
        )


@contextmanager
def _errors(seconds: float) -> Iterator[None]:
    """DuckDB's errors as ours."""
    try:
        yield
    except duckdb.InterruptException as error:
        raise Exhausted(
            f"the question took longer than {seconds:g} s, the limit, and was stopped: ask for less at once"
        ) from error
    except duckdb.OutOfMemoryException as error:
        raise Exhausted(
            f"the question needs more than {SQL_MEMORY_BYTES // MiB} MiB, the limit: group or filter more"
        ) from error
    except duckdb.PermissionException as error:
        raise Denied(f"SQL reaches the trace and nothing else: {_sentence(error)}") from error
    except duckdb.Error as error:
        raise BadInput(_sentence(error)) from error


def _sentence(error: Exception) -> str:
    return str(error).strip()[:_MESSAGE_CHARS_MAX]


@contextmanager
def _time_limit(connection: Any, seconds: float) -> Iterator[None]:
    """Interrupt what goes on in the block after so long, again and again: a query that is just starting misses it."""
    done = threading.Event()

    def stop() -> None:
        pause = seconds
        while not done.wait(pause):
            connection.interrupt()
            pause = _INTERRUPT_SECONDS

    watch = threading.Thread(target=stop, daemon=True)
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()  # it must not meet a connection that is closed


def _answer(result: Any, limit: int) -> Iterator[bytes]:
    """{"columns", "rows", "truncated"}, row by row."""
    columns = [{"name": column[0], "type": str(column[1])} for column in result.description]
    yield b'{"columns": %b, "rows": [' % json.dumps(columns).encode()
    written = size = 0
    while written < limit and (rows := result.fetchmany(min(_ROWS_AT_ONCE, limit - written))):
        for row in rows:
            text = json.dumps(_plain(row)).encode()
            size += len(text)
            if size > SQL_RESULT_BYTES_MAX:
                raise Exhausted(
                    f"the answer is larger than {SQL_RESULT_BYTES_MAX // MiB} MiB: ask for less, or --limit"
                )
            yield b",\n" + text if written else text
            written += 1
    truncated = written == limit and result.fetchone() is not None
    yield b'], "truncated": %b}\n' % (b"true" if truncated else b"false")


def _plain(value: Any) -> Any:
    """A value of DuckDB's as JSON: what JSON has no type for as text, what is no number as null."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return str(value)
