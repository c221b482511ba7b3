"""What a question in SQL names: tables that are made for it, columns that are read, and how often."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import pyarrow as pa

from profd.query.arrow import EVENTS_SCHEMA, TABLES, Make
from profd.query.arrow_args import args_arrow, tensors_arrow
from profd.segments.reader import TraceReader, Window

_ALL: Final[dict[str, Make]] = {**TABLES, "args": args_arrow, "tensors": tensors_arrow}
_OF_ANY: Final = re.compile(
    r"\b(query|show|\w+_(tables|views|columns|schema)|pg_catalog)\b|^\s*describe\s*;?\s*$", re.IGNORECASE
)
_ARGUMENT: Final = re.compile(r'"arg\.((?:[^"]|"")+)"', re.IGNORECASE)
_ASK_NOTHING: Final = re.compile(r"\s*(describe|show|explain)\b", re.IGNORECASE)


def tables_named(sql: str) -> list[str]:
    """The tables besides `events` that a question may name."""
    words = set(re.findall(r"\w+", sql.lower()))
    any_ = _OF_ANY.search(sql) is not None
    return [name for name in _ALL if name in words or (any_ and name in TABLES)]


def args_named(sql: str) -> list[str]:
    """Keys of arguments that a question names as columns, `"arg.<key>"`, each once."""
    return [*dict.fromkeys(key.replace('""', '"') for key in _ARGUMENT.findall(sql))]


def made(name: str, reader: TraceReader, window: Window | None) -> pa.Table:
    """One of these; of a window there are the arguments of its events."""
    return args_arrow(reader, window) if name == "args" else _ALL[name](reader)


@dataclass(frozen=True, slots=True)
class Named:
    """What a question wants of `events`."""

    columns: list[str]  # of EVENTS_SCHEMA, one at least
    times: int = 1  # that it may read them
    few: bool = False  # it stops, or asks for no row at all

    @classmethod
    def of(cls, connection: duckdb.DuckDBPyConnection, sql: str) -> Named:
        """By the tree that DuckDB makes of the question: all columns where it does not say."""
        few = _ASK_NOTHING.match(sql) is not None
        try:
            told = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()[0][0]
            nodes = list(_nodes(json.loads(told)))
        except (duckdb.Error, RecursionError):
            return cls([*EVENTS_SCHEMA.names], few=few)
        words = _words(nodes)
        wanted = [name for name in EVENTS_SCHEMA.names if words is None or name.lower() in words]
        reads = sum(str(node.get("table_name")).lower() == "events" for node in nodes)
        return cls(wanted or ["row"], max(reads, 1), few or _is_cut(nodes[0]))


def _nodes(tree: Any) -> Iterator[Mapping[str, Any]]:
    """Its objects, the whole first."""
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict) and not _orders_by_all(node):
            yield node
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


def _orders_by_all(node: Mapping[str, Any]) -> bool:
    """ORDER BY ALL is by what is selected, and looks like `*`."""
    if node.get("type") != "ORDER_MODIFIER" or len(node.get("orders", ())) != 1:
        return False
    by = node["orders"][0].get("expression", {})
    return by.get("class") == "STAR" and by.get("columns") is True and by.get("expr") is None


def _is_cut(tree: Mapping[str, Any]) -> bool:
    """Whether it ends after so many rows, which need not be the first by an order."""
    [statement] = tree.get("statements") or [{}]
    kinds = {str(one.get("type")) for one in statement.get("node", {}).get("modifiers", [])}
    return "LIMIT_MODIFIER" in kinds and "ORDER_MODIFIER" not in kinds


def _words(nodes: list[Mapping[str, Any]]) -> set[str] | None:
    """Every word in the place of a name, in lower case, and more; None: all columns may be needed."""
    words: set[str] = set()
    tables: set[str] = set()
    alone: set[str] = set()  # names that may be those of a whole row
    for node in nodes:
        if nodes[0].get("error") or _takes_all(node):
            return None
        if node.get("type") == "BASE_TABLE":
            tables |= {str(node.get("alias")).lower(), str(node.get("table_name")).lower()}
        names = node.get("column_names")
        if isinstance(names, list) and len(names) == 1:
            alone.add(str(names[0]).lower())
        words |= {text.lower() for value in node.values() for text in _texts(value)}
    return None if tables & alone else words


def _texts(value: Any) -> Iterator[str]:
    """Texts in the place of a value, and in a list of lists of them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)


def _takes_all(node: Mapping[str, Any]) -> bool:
    """`*`, COLUMNS(…), a join by all common names, a pivot, which groups by all that is left, and SQL in a text."""
    kinds = (node.get("class"), node.get("type"), node.get("ref_type"), node.get("function_name"))
    return not {"STAR", "PIVOT", "SHOW_REF", "NATURAL", "query"}.isdisjoint(map(str, kinds))
