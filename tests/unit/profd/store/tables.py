"""Random EventTables, and what they look like as plain rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from profd.events import COLUMNS, NO_END, ArgColumn, Dictionary, EventTable

WORDS = ["", "aten::mm", "naïve ∂", "nul\0byte", 'tab\t"quote"', "surrogate \ud800", "x" * 300]
ARG_KEYS = [("Device", "int"), ("grid", "json"), ("occupancy", "float"), ("grid", "str"), ("a.b", "int"), ("a", "int")]
ARG_KEYS += [("impl_ptrs", "ints")]


def random_table(seed: int, rows: int, first_row: int = 0, after: int = 0) -> EventTable:
    """A table with every column about half absent, or whole columns missing."""
    rng = np.random.default_rng(seed)
    dictionaries = {spec.dictionary: Dictionary(WORDS) for spec in COLUMNS.values() if spec.dictionary is not None}
    columns: dict[str, Any] = {}
    for name, spec in COLUMNS.items():
        if name == "start":
            columns[name] = after + np.cumsum(rng.integers(0, 50, rows))
        elif spec.absent is None or rng.random() < 0.8:
            columns[name] = _values(rng, spec.dtype, spec.absent, spec.dictionary, rows)
    columns["end"] = np.where(rng.random(rows) < 0.8, columns["start"] + rng.integers(0, 500, rows), NO_END)
    args = {key: _arg(rng, key[1], rows) for key in ARG_KEYS if rng.random() < 0.7}
    return EventTable(columns, dictionaries, args, first_row)


def _values(rng: Any, dtype: Any, absent: Any, dictionary: str | None, rows: int) -> Any:
    if dictionary is not None:
        return rng.integers(-1, len(WORDS), rows).astype(np.int32)
    values = rng.integers(0, 100, rows).astype(dtype)
    if absent is not None:
        values[rng.random(rows) < rng.choice([0.0, 0.5, 1.0])] = absent
    return values


def _arg(rng: Any, kind: str, rows: int) -> ArgColumn:
    where = np.flatnonzero(rng.random(rows) < rng.choice([0.0, 0.1, 1.0]))
    if kind in ("str", "json"):
        return ArgColumn(kind, where, rng.integers(0, len(WORDS), len(where)).astype(np.int32), Dictionary(WORDS))
    if kind == "float":
        return ArgColumn(kind, where, rng.standard_normal(len(where)))
    if kind == "ints":
        where = np.repeat(where, rng.integers(1, 4, len(where)))
    return ArgColumn(kind, where, rng.integers(-(2**63), 2**63, len(where)))


def plain(table: EventTable) -> list[dict[str, Any]]:
    """Rows as dicts without what is absent; strings instead of codes. Slow and obvious."""
    rows: list[dict[str, Any]] = [{} for _ in range(len(table))]
    for name, values in table.columns.items():
        spec = COLUMNS.get(name)
        for row, value in zip(rows, values.tolist(), strict=True):
            if spec is None or not _absent(value, spec.absent):
                row[name] = value
                if spec is not None and spec.dictionary is not None:
                    row[name] = table.dictionaries[spec.dictionary].values[value]
    for key, arg in table.args.items():
        for place, value in zip(arg.rows.tolist(), arg.values.tolist(), strict=True):
            if key[1] == "ints":
                rows[place].setdefault(f"arg {key}", []).append(value)
                continue
            rows[place][f"arg {key}"] = arg.dictionary.values[value] if arg.dictionary is not None else value
    return rows


def _absent(value: Any, absent: Any) -> bool:
    if isinstance(absent, float):
        return math.isnan(value)
    return absent is not None and bool(value == absent)
