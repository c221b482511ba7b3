"""The stored tree as JSON lines, a segment at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from profd import _engine
from profd.errors import BadInput
from profd.events import COLUMNS, DeviceType, EventTable, Kind, Tracks
from profd.events.table import Array
from profd.query.part import chosen_rows, numbers_of, of_job, part_of
from profd.query.whole import whole
from profd.segments.meta import encode_json
from profd.segments.reader import TraceReader

TREE_COLUMNS: Final = (
    "parent",
    "depth",
    "name",
    "kind",
    "cat",
    "start",
    "end",
    "process",
    "thread",
    "device_type",
    "device",
    "stream",
    "correlation",
    "external",
)
_LINES_AT_ONCE: Final = 1 << 14

_ENCODER: Final = msgspec.json.Encoder()
_KINDS: Final = {int(kind): kind.label for kind in Kind}
_DEVICES: Final = {int(device): device.label for device in DeviceType}


class TreeLine(msgspec.Struct, gc=False):
    """One event of `profctl tree --json`; absent is null. Times in Unix ns, rows counted over the trace."""

    row: int
    parent: int | None
    depth: int
    name: str | None
    kind: str
    cat: str | None
    start_ns: int
    end_ns: int | None
    process: Any  # id as recorded: a number or a string
    thread: Any
    device_type: str
    device: int | None
    stream: int | None
    correlation: int | None
    external: int | None


def tree_lines(
    reader: TraceReader, max_depth: int = 0, from_row: int | None = None, **part: Any
) -> Iterator[tuple[int, bytes]]:
    """Yield (number of lines, the lines) in row order.

    `max_depth` counts levels, 0 means all. `from_row` keeps that row and what is
    below it, with its depth counted from 0; BadInput if there is no such row.
    `part`: arguments of `part_of`; what lies in the part in part is there as it was recorded. Threads of profd are
    left out, unless `thread` or `from_row` names one.
    """
    if from_row is not None and not 0 <= from_row < len(reader):
        raise BadInput(f"the trace has no row {from_row}: its rows are 0 to {len(reader) - 1}")
    inside = None if from_row is None else _subtree(reader, from_row)
    chosen = part_of(reader, **part)
    on = chosen_rows(reader, chosen if from_row is not None else of_job(reader, chosen))
    for table in reader.iterate(TREE_COLUMNS, window=chosen.window, args=False):
        number = numbers_of(table)
        depth = table.column("depth").astype(np.int64)
        keep = np.ones(len(table), dtype=bool) if on is None else on[number]
        if inside is not None:
            keep = keep & inside.rows[number]
            depth -= inside.depth
        if max_depth > 0:
            keep = keep & (depth < max_depth)
        rows = np.flatnonzero(keep)
        for first in range(0, len(rows), _LINES_AT_ONCE):
            some = rows[first : first + _LINES_AT_ONCE]
            yield len(some), _encode(table, number, depth, some, reader.tracks)


@dataclass(frozen=True, slots=True)
class _Subtree:
    rows: Array  # bool per row of the trace
    depth: int  # of its top


def _subtree(reader: TraceReader, top: int) -> _Subtree:
    """A row and what is below it. Of equal starts a child may be the earlier row, so all are looked at."""
    table = whole(reader, ("parent", "depth"))
    parent = np.ascontiguousarray(table.column("parent"))
    by_parent = _engine.argsort(parent)
    sorted_parent = parent[by_parent]
    inside = np.zeros(len(parent), dtype=bool)
    level = np.array([top], dtype=np.int64)
    while len(level):
        inside[level] = True
        first = np.searchsorted(sorted_parent, level, side="left")
        count = np.searchsorted(sorted_parent, level, side="right") - first
        offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        level = by_parent[np.repeat(first, count) + offset]
    return _Subtree(inside, int(table.column("depth")[top]))


def _encode(table: EventTable, number: Array, depth: Array, rows: Array, tracks: Tracks) -> bytes:
    names, categories = _texts(table, "name"), _texts(table, "cat")
    processes = [track.get("id") for track in tracks.processes]
    threads = [track.get("id") for track in tracks.threads]
    columns = (
        number[rows].tolist(),
        _optional(table, "parent", rows),
        depth[rows].tolist(),
        [names[code] if code >= 0 else None for code in table.column("name")[rows].tolist()],
        [_KINDS.get(code, "other") for code in table.column("kind")[rows].tolist()],
        [categories[code] if code >= 0 else None for code in table.column("cat")[rows].tolist()],
        table.columns["start"][rows].tolist(),
        _optional(table, "end", rows),
        [processes[at] if 0 <= at < len(processes) else None for at in table.column("process")[rows].tolist()],
        [threads[at] if 0 <= at < len(threads) else None for at in table.column("thread")[rows].tolist()],
        [_DEVICES.get(code, "other") for code in table.column("device_type")[rows].tolist()],
        *(_optional(table, name, rows) for name in ("device", "stream", "correlation", "external")),
    )
    lines = [TreeLine(*values) for values in zip(*columns, strict=True)]
    try:
        return _ENCODER.encode_lines(lines)
    except (OverflowError, UnicodeEncodeError):
        # Foreign traces have ids beyond 64 bits and names with lone surrogates.
        return b"".join(encode_json(line) + b"\n" for line in lines)


def _texts(table: EventTable, dictionary: str) -> list[str]:
    known = table.dictionaries.get(dictionary)
    return known.values if known is not None else []


def _optional(table: EventTable, name: str, rows: Array) -> list[int | None]:
    absent = COLUMNS[name].absent
    values: list[int | None] = table.column(name)[rows].tolist()
    return [None if value == absent else value for value in values]
