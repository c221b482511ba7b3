"""The timeline of a trace: from what was kept of it, and from the events where one looks closer than that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from profd import limits
from profd.events import EventTable
from profd.events.table import Array
from profd.query.tiles import kept
from profd.query.tiles.lanes import COLUMNS, Scan
from profd.query.tiles.pyramid import Pyramid, building, built, top_of
from profd.query.tiles.seen import EARLIEST, LATEST, LEVELS, Visible, boxes_in, buckets_of, cells_in
from profd.query.tiles.shapes import Boxes, Cells, coarser, merged
from profd.query.tiles.sketch import Sketch
from profd.query.whole import check_size
from profd.segments.meta import encode_json
from profd.segments.reader import TraceReader, Window

WHOLE_ROWS: Final = 1 << 17
"""A trace of so few events is looked at whole for each question: nothing is kept of it."""
_MARGIN: Final = 3  # pixels of the base: what ends in the first of them is no neighbour of what begins in the last


def timeline_of(trace: TraceReader, *, sketch: bool = False) -> Whole | Tall | Sketch:
    """By whichever way is quicker; `sketch`: by a sample, where the pyramid would have to be built, and that is long.

    Exhausted for too many lanes.
    """
    if len(trace) <= WHOLE_ROWS:
        return Whole(trace)
    found = kept.found(trace)
    return Sketch(trace) if sketch and found is None and len(trace) > limits.SKETCH_ROWS else Tall(trace, found)


def index_lines(trace: TraceReader) -> Iterator[tuple[int, bytes]]:
    """The question `tiles_index`: keep what `tiles` reads, and say how many events are in it meanwhile."""
    events = len(trace)
    if events > WHOLE_ROWS and kept.found(trace) is None:
        trace.rollups.before_long_work()
        told = -1
        for done, pyramid in building(trace):
            if pyramid is not None:
                kept.keep(trace, pyramid)
            elif (percent := 100 * done // events) > told:
                told = percent
                yield _line(done, events, there=False)
    yield _line(events, events, there=True)


def _line(done: int, events: int, *, there: bool) -> tuple[int, bytes]:
    return 1, encode_json({"events": done, "of": events, "there": there}) + b"\n"


class Whole:
    """From all events."""

    def __init__(self, trace: TraceReader) -> None:
        self._begin, self._end = trace.meta.start_ns or 0, trace.meta.end_ns or 0
        self._tables = list(trace.iterate(COLUMNS, args=False))
        scan = Scan(self._begin, self._end)
        _scanned(self._tables, scan, top_of(self._begin, self._end))
        self.lanes = scan.lanes

    def seen(self, window: Window, level: int) -> Visible:
        """At this level, or at that of the whole trace."""
        level = min(level, top_of(self._begin, self._end))
        boxes, cells = _scanned(self._tables, Scan(self._begin, self._end), level)
        return Visible(level, boxes_in(boxes, window, level), cells_in(cells, window, level, self._begin))


class Tall:
    """From a pyramid, and the events of narrow windows."""

    def __init__(self, trace: TraceReader, found: kept.Kept | None) -> None:
        self._trace = trace
        self._near: _Near | None = None
        self._tall: tuple[Window, Boxes] | None = None  # what was read of the base
        self._pyramid = found or self._build()
        self.lanes = self._pyramid.lanes

    def _build(self) -> Pyramid:
        self._trace.rollups.before_long_work()
        pyramid = built(self._trace)
        kept.keep(self._trace, pyramid)
        return pyramid

    def seen(self, window: Window, level: int) -> Visible:
        """At this level, or at that of the whole trace."""
        try:
            near = self._near_to(window, level)
            return self._far(window, level) if near is None else near.seen(self._trace.meta.start_ns or 0)
        except kept.Damaged:
            self._near = self._tall = None
            self._pyramid = self._build()
            self.lanes = self._pyramid.lanes
            return self.seen(window, level)

    def from_level(self, window: Window, level: int, on: Array, limit: int) -> int:
        """The level, or one of which all finer ones have more than `limit` boxes and cells on these lanes.

        A box of the base is one at each finer level, and a cell of it is at least one: no events need be read to say
        that they are too many. Only cells that reach beyond the window may be outside of it there.
        """
        base, begin = self._pyramid.base, self._trace.meta.start_ns or 0
        if level >= base:
            return level
        first, last = buckets_of(window, base, begin)
        try:
            boxes = boxes_in(self._boxes(self._around(window)), window, base)
            count = int(np.count_nonzero(on[boxes.lane]))
            if count + (last - first - 1) * np.count_nonzero(on) > limit:
                cells = self._pyramid.cells_of(window, base)
                count += int(np.count_nonzero(on[cells.lane[(cells.bucket > first) & (cells.bucket < last)]]))
        except kept.Damaged:  # `seen` builds it anew
            return level
        return min(base + 1, LEVELS - 1) if count > limit else level

    def _around(self, window: Window) -> Window:
        """From which on events are read: what begins in a pixel of the base, and what is near to its begin."""
        base, begin = self._pyramid.base, self._trace.meta.start_ns or 0
        last = begin + (buckets_of(window, base, begin)[1] << base)  # the pixel that the window ends in counts whole
        return max(window[0] - (_MARGIN << base), EARLIEST), min(last + (1 << base), LATEST)

    def _boxes(self, around: Window) -> Boxes:
        """Of the base, at least those with a part in this window. Damaged."""
        if self._tall is None or self._tall[0] != around:
            self._tall = around, self._pyramid.boxes_of(around, self._pyramid.base)
        return self._tall[1]

    def _far(self, window: Window, level: int) -> Visible:
        return self._pyramid.part(window, level).seen(window, level)

    def _near_to(self, window: Window, level: int) -> _Near | None:
        """What is finer than the base; a window that is asked for once more, and coarser, is not read again."""
        base, begin = self._pyramid.base, self._trace.meta.start_ns or 0
        known = self._near if self._near is not None and self._near.window == window else None
        if known is not None and known.level <= level <= base:
            while known.level < level:
                known = known.coarser(begin)
        else:
            known = self._read(window, level) if level < base else None
        self._near = known
        return known

    def _read(self, window: Window, level: int) -> _Near:
        """From the events that begin around the window. What began long before is tall enough for the base."""
        trace, begin, around = self._trace, self._trace.meta.start_ns or 0, self._around(window)
        since, older = around[0], self._boxes(around)
        older = older.take((older.start < since) & (older.start + older.lasts >= since))
        scan = Scan(begin, trace.meta.end_ns or 0)
        scan.run(self.lanes, older)
        newer, cells = _scanned(trace.begun(COLUMNS, around), scan, level)
        ours = _numbers(scan.lanes.key, self.lanes.key)
        return _Near(window, level, Boxes.joined([older, newer.on(ours)]), cells.on(ours))


@dataclass(frozen=True, slots=True)
class _Near:
    """What can be seen around a window, as far as a pixel of the base reaches."""

    window: Window
    level: int
    boxes: Boxes
    cells: Cells

    def coarser(self, begin: int) -> _Near:
        """The same at the next level."""
        level = self.level + 1
        tall = self.boxes.weight >= 1 << level
        cells = coarser(self.cells, 1, self.boxes, np.flatnonzero(~tall), begin, level)
        return _Near(self.window, level, self.boxes.take(np.flatnonzero(tall)), cells)

    def seen(self, begin: int) -> Visible:
        """Of it what is in the window."""
        boxes = boxes_in(self.boxes, self.window, self.level)
        return Visible(self.level, boxes, cells_in(self.cells, self.window, self.level, begin))


def _numbers(wanted: Array, known: Array) -> Array:
    """The place of each of the wanted keys among those that are known."""
    order = np.argsort(known)
    found: Array = order[np.searchsorted(known[order], wanted)]
    return found.astype(np.int32)


def _scanned(tables: Iterable[EventTable], scan: Scan, level: int) -> tuple[Boxes, Cells]:
    """What can be seen of these events, in order of their start, and cells of all others."""
    boxes, cells, count = [], [], 0
    for table in tables:
        seen, hidden = scan.add(table, level)
        boxes.append(seen)
        cells.append(hidden)
        count += len(seen) + len(hidden)
        check_size(count, "look at a shorter window")
    return Boxes.joined(boxes), merged(Cells.joined(cells))
