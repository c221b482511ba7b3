"""speedscope's evented JSON: one profile per thread and device stream.

The format wants strictly nested frames, so a span that outlives the frame it
began in is shown to end with it, as in the stored tree. Everything else is
drawn as recorded; spans without a thread, marks and counters are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

import msgspec
import numpy as np

from profd.events.table import Array
from profd.export.spans import Spans, read_spans, track_titles
from profd.model.text import encodable
from profd.segments.reader import TraceReader, Window
from profd.workers.jobs import Progress

_SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"
_EVENTS_AT_ONCE: Final = 1 << 15


class _Mark(msgspec.Struct):
    type: str  # "O" opens a frame, "C" closes it
    frame: int
    at: int


def write(
    reader: TraceReader, out: BinaryIO, window: Window | None, progress: Progress, min_duration_ns: int = 0
) -> int:
    """Write what lasts so long in a window (Unix ns) or the whole trace; returns how many events were drawn."""
    progress("profiles", 0.0)
    spans = read_spans(reader, window, min_duration_ns)
    head = {
        "$schema": _SCHEMA,
        "name": encodable(reader.meta.title or reader.meta.trace),
        "exporter": "profd",
        "activeProfileIndex": 0,
    }
    out.write(msgspec.json.encode(head)[:-1] + b',"profiles":[')
    titles = track_titles(reader)
    drawn = 0
    for number, (thread, rows) in enumerate(_threads(spans)):
        out.write(b"," if number else b"")
        _write_profile(out, spans, rows, encodable(titles[thread]) if thread < len(titles) else f"thread {thread}")
        drawn += len(rows)
        progress("profiles", drawn / len(spans.row))
    frames = [{"name": encodable(name) or "?"} for name in spans.names] or [{"name": "?"}]
    out.write(b'],"shared":{"frames":' + msgspec.json.encode(frames) + b"}}")
    return drawn


def _threads(spans: Spans) -> Iterator[tuple[int, Array]]:
    """(thread track, its spans: longer first among equal starts)."""
    order = np.lexsort((-spans.end, spans.start, spans.thread))
    cuts = np.flatnonzero(np.diff(spans.thread[order])) + 1
    for rows in np.split(order, cuts):
        if len(rows):
            yield int(spans.thread[rows[0]]), rows


def _write_profile(out: BinaryIO, spans: Spans, rows: Array, name: str) -> None:
    start, end = spans.start[rows].tolist(), spans.end[rows].tolist()
    frame = np.maximum(spans.name[rows], 0).tolist()
    zero = start[0]
    head = {
        "type": "evented",
        "name": name,
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": max(end) - zero,
    }
    out.write(msgspec.json.encode(head)[:-1] + b',"events":[')
    waiting: list[_Mark] = []
    written = False
    for mark in _marks(zip(start, end, frame, strict=True), zero):
        waiting.append(mark)
        if len(waiting) == _EVENTS_AT_ONCE:
            out.write((b"," if written else b"") + msgspec.json.encode(waiting)[1:-1])
            written = True
            waiting.clear()
    if waiting:
        out.write((b"," if written else b"") + msgspec.json.encode(waiting)[1:-1])
    out.write(b"]}")


def _marks(spans: Iterator[Any], zero: int) -> Iterator[_Mark]:
    stack: list[tuple[int, int]] = []  # (end, frame) of open frames; ends fall towards the top
    for start, end, frame in spans:
        while stack and stack[-1][0] <= start:
            closing, which = stack.pop()
            yield _Mark("C", which, closing - zero)
        until = min(end, stack[-1][0]) if stack else end
        stack.append((until, frame))
        yield _Mark("O", frame, start - zero)
    while stack:
        closing, which = stack.pop()
        yield _Mark("C", which, closing - zero)
