"""Columns of a whole trace at once, within a named limit."""

from __future__ import annotations

from collections.abc import Collection

from profd.errors import Exhausted
from profd.events import EventTable
from profd.limits import QUERY_ROWS_MAX
from profd.segments.reader import TraceReader


def check_size(rows: int, instead: str = "ask with --raw, or narrow it with --window") -> None:
    """Exhausted where so many events at once would not fit into a worker; `instead`: what would."""
    if rows > QUERY_ROWS_MAX:
        raise Exhausted(f"this question needs {rows:,} events at once, which works up to {QUERY_ROWS_MAX:,}: {instead}")


def whole(reader: TraceReader, columns: Collection[str]) -> EventTable:
    """One table of these columns over all segments. Exhausted where they would not fit into a worker."""
    check_size(len(reader))
    return reader.read(columns, args=False)
