"""Derived lines of XSpace traces (docs/timeline.md), as exports draw them beside what was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profd.derive.timeline.current import derive
from profd.limits import QUERY_ROWS_MAX
from profd.query.space import is_xspace, read_space
from profd.segments.reader import TraceReader, Window

CATEGORY: Final = "profd.derived"  # by which an import knows them and leaves them out: they are no events
_NS: Final = 1000  # ps


@dataclass(frozen=True, slots=True)
class DrawnLine:
    """A derived line of a process (a plane, by track number); its spans (name, start, end) in Unix ns, by start."""

    process: int
    title: str
    spans: list[tuple[str, int, int]]


def drawn_lines(reader: TraceReader, window: Window | None, min_duration_ns: int = 0) -> Iterator[DrawnLine]:
    """The lines with what overlaps the window and lasts so long; none for other traces, and for those too large."""
    if not is_xspace(reader) or len(reader) > QUERY_ROWS_MAX:
        return
    planes = {str(process.get("name") or process["id"]): at for at, process in enumerate(reader.tracks.processes)}
    zero = reader.meta.start_ns or 0
    low, high = window or (-(1 << 63), 1 << 63)
    for line in derive(read_space(reader))[0]:
        spans = ((event.name, zero + event.start // _NS, zero + event.end // _NS) for event in line.events)
        shown = [span for span in spans if span[1] < high and span[2] > low and span[2] - span[1] >= min_duration_ns]
        if shown and line.plane in planes:
            yield DrawnLine(planes[line.plane], f"{line.name} (derived)", shown)
