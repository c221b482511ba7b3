"""The question `event`: everything about one event (docs/json.md has the keys)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from profd.errors import BadInput
from profd.events import COLUMNS, NO_END, NO_ROW, ArgColumn, DeviceType, EventTable, Kind
from profd.query.event_links import links
from profd.segments import plain_json
from profd.segments.reader import TraceReader

WITHIN_MAX: Final = 32  # events around one that are named, from the inside
_APART: Final = ("name", "kind", "start", "end", "process", "thread", "end_thread", "device_type", "parent", "linked")
_NOTHING: Final = ("depth", "is_async", "start_ps", "end_ps")  # of the other columns, where they are 0


def event(trace: TraceReader, *, row: int) -> dict[str, Any]:
    """One event by its row. BadInput where there is none."""
    if row >= len(trace):
        raise BadInput(f"the trace has no row {row}: it has {len(trace):,} events")
    table = trace.rows(np.array([row], dtype=np.int64))
    said = _said(trace, table)
    within = list(_within(trace, _number(table, "parent"), row))
    linked = _number(table, "linked")
    return {
        **said,
        "device_type": DeviceType(int(table.column("device_type")[0])).label,
        "process": _track(trace.tracks.processes, _number(table, "process")),
        "thread": _track(trace.tracks.threads, _number(table, "thread")),
        "stack": (_text(table, "stack") or "").split(";") if _text(table, "stack") else [],
        "within": within,
        "launch": _brief(trace, linked) if 0 <= linked < len(trace) else None,
        **links(trace, table, _brief),
        "columns": _columns(table),
        "arguments": {key: _argument(column) for (key, _), column in table.args.items() if len(column.rows)},
    }


def _said(trace: TraceReader, table: EventTable) -> dict[str, Any]:
    start, end = int(table.columns["start"][0]), int(table.column("end")[0])
    return {
        "row": int(table.columns["row"][0]),
        "name": _text(table, "name"),
        "kind": Kind(int(table.column("kind")[0])).label,
        "start_ns": start,
        "end_ns": None if end == NO_END else end,
        "duration_ns": None if end == NO_END else max(end - start, 0),
        "from_ns": start - (trace.meta.start_ns or 0),
    }


def _brief(trace: TraceReader, row: int) -> dict[str, Any]:
    return _said(trace, trace.rows(np.array([row], dtype=np.int64), ("start", "end", "name", "kind"), args=False))


def _within(trace: TraceReader, row: int, below: int) -> Iterator[dict[str, Any]]:
    """The events around one, the innermost first."""
    passed = {below}
    while 0 <= row < len(trace) and row not in passed and len(passed) <= WITHIN_MAX:
        passed.add(row)
        columns = ("start", "end", "name", "kind", "parent")
        table = trace.rows(np.array([row], dtype=np.int64), columns, args=False)
        yield _said(trace, table)
        row = _number(table, "parent")


def _number(table: EventTable, name: str) -> int:
    return int(table.column(name)[0])


def _text(table: EventTable, name: str) -> str | None:
    code = int(table.column(name)[0])
    return table.dictionaries[name].values[code] if code >= 0 and name in table.dictionaries else None


def _track(tracks: list[dict[str, Any]], number: int) -> dict[str, Any] | None:
    known = number != NO_ROW and 0 <= number < len(tracks)
    return {"id": tracks[number].get("id"), "name": tracks[number].get("name")} if known else None


def _columns(table: EventTable) -> dict[str, Any]:
    """The others that it has a value in."""
    found: dict[str, Any] = {}
    for name, column in COLUMNS.items():
        if name in _APART or name == "stack" or name not in table.columns:
            continue
        value = table.columns[name][0]
        if column.dictionary is not None:
            text = _text(table, name)
            found |= {} if text is None else {name: text}
        elif column.absent is None or (value != column.absent and value == value):
            found |= {} if name in _NOTHING and not value else {name: value.item()}
    return found


def _argument(column: ArgColumn) -> Any:
    """Its value, or a list of several."""
    if column.dictionary is not None:
        text = column.dictionary.values[int(column.values[0])]
        return _parsed(text) if column.type == "json" else text
    values = column.values.tolist()
    return values if column.type == "ints" else values[0]


def _parsed(text: str) -> Any:
    try:
        return plain_json.loads(text)
    except (ValueError, RecursionError):
        return text
