"""`profctl sql`: Ask a trace in SQL."""

from __future__ import annotations

import json
from typing import Any

import click

from profclient.cli.backend import traces
from profclient.cli.options import json_option, window_options, window_query
from profclient.cli.output import emit_json, say, table

LIMIT_DEFAULT = 1000


@click.command()
@click.argument("trace")
@click.argument("question")
@click.option(
    "--limit",
    type=click.IntRange(0, 1_000_000),
    default=LIMIT_DEFAULT,
    show_default=True,
    help="Number of rows; 0 = a million.",
)
@window_options
@json_option
def sql(trace: str, question: str, limit: int, as_json: bool, **within: Any) -> None:
    """Ask a trace in DuckDB's SQL, read-only. An empty TRACE means your latest trace.

    With --step or --window the table events has those with a part in it, whole; other tables are as they are.

    TRACE may be a capture: the tables have the rows of all its traces, and rank, host and trace before the other
    columns. Rows are numbered in each trace: join by trace and row.

    An argument is a column of events, too, where a question names it: "arg.layer", in quotes.

    \b
    Tables: events, flows, backward, args, tensors, threads, processes; "describe events" lists columns.
      profctl sql "" "select name, count(*) n from events group by name order by n desc"
    """
    with traces() as source:
        answer = source.ask("sql", trace, sql=question, limit=limit, **window_query(within)).value()
    if as_json:
        emit_json(answer)
        return
    names = [column["name"] for column in answer["columns"]]
    numbers = [column["name"] for column in answer["columns"] if _is_number(column["type"])]
    texts = [name for name in names if name not in numbers]
    table(names, ([_cell(value) for value in row] for row in answer["rows"]), right=numbers, wide=texts)
    if answer["truncated"]:
        say(f"… cut at {len(answer['rows']):,} rows; --limit N gives more.")


def _is_number(kind: str) -> bool:
    return kind.endswith("INT") or kind in {"INTEGER", "DOUBLE", "FLOAT"} or kind.startswith("DECIMAL")


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
