"""What can be seen at each level from one on, of a whole trace: much less than its events, and worked out once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

import numpy as np

from profd import _engine
from profd.events.table import Array
from profd.limits import TILE_SHARE, TILES_LEAST, TILES_MOST
from profd.query.tiles.lanes import COLUMNS, Lanes, Scan
from profd.query.tiles.named import Named, NameScan
from profd.query.tiles.seen import LEVELS, Visible, boxes_in, cells_in
from profd.query.tiles.shapes import Boxes, Cells, coarser, merged
from profd.segments.read_ahead import read_ahead
from profd.segments.reader import TraceReader, Window

_FINEST: Final = 0
_Shape = TypeVar("_Shape", Boxes, Cells)


@dataclass(frozen=True, slots=True)
class Pyramid:
    """Of a trace, or what was read of its rollup for one question."""

    begin: int  # the trace's first start, Unix ns
    base: int  # the finest level
    lanes: Lanes
    boxes: Boxes  # of the base: coarser levels have some of these
    cells: dict[int, Cells]  # by level
    named: Named | None = None  # of a whole trace, where that is kept

    @property
    def top(self) -> int:
        """The coarsest level; the whole trace is a pixel there."""
        return max(self.cells)

    def part(self, window: Window, level: int) -> Pyramid:
        """What a window needs of it at one level, `base` or coarser; here all."""
        del window, level
        return self

    def boxes_of(self, window: Window, level: int) -> Boxes:
        """Of the boxes of this level all with a part in the window, and others; here all."""
        del window, level
        return self.boxes

    def cells_of(self, window: Window, level: int) -> Cells:
        """The same of cells of this level, `base` or coarser."""
        del window
        return self.cells[min(level, self.top)]

    def seen(self, window: Window, level: int) -> Visible:
        """At this level, which it must have: `base` or coarser. Beyond the top it is that one."""
        level = min(level, self.top)
        cells = cells_in(self.cells[level], window, level, self.begin)
        return Visible(level, boxes_in(self.boxes, window, level), cells)


def built(reader: TraceReader) -> Pyramid:
    """From the events. Exhausted for too many lanes."""
    return next(pyramid for _, pyramid in building(reader) if pyramid is not None)


def building(reader: TraceReader) -> Iterator[tuple[int, Pyramid | None]]:
    """The same, and how many rows are in it meanwhile; the pyramid comes last.

    The base is as fine as a share of their number allows.
    """
    begin, end = reader.meta.start_ns or 0, reader.meta.end_ns or 0
    scan, base = Scan(begin, end), _FINEST
    boxes, cells = _Heap(Boxes.joined), _Heap(Cells.joined)
    names = NameScan(begin, end, len(reader)) if reader.rollups.fresh else None
    done, top = 0, top_of(begin, end)
    for table in read_ahead(reader.iterate(COLUMNS, args=False)):  # decoded while another is placed
        base = base if done else _first(Scan(begin, end).weights(table), top)
        seen, hidden = scan.add(table, base)
        if names:
            names.add(table)
        boxes.add(seen)
        cells.add(hidden)
        done += len(table)
        while base < top and len(boxes) + len(cells) > (room := _room(done)):
            level = _next(boxes.whole(), base, top, room)
            every = boxes.whole()
            tall, short = _apart(every, level)
            cells = _Heap(Cells.joined, coarser(cells.whole(), level - base, every, short, begin, level))
            boxes, base = _Heap(Boxes.joined, every.take(tall)), level
        yield done, None
    pyramid = _levels(begin, end, base, scan.lanes, boxes.whole(), merged(cells.whole()))
    yield done, replace(pyramid, named=names.named(names_of(reader))) if names else pyramid


def names_of(reader: TraceReader) -> list[str]:
    """The names that were read so far, by code."""
    known = reader.dictionaries.get("name")
    return known.values if known is not None else []


def top_of(begin: int, end: int) -> int:
    """The level at which a trace is a pixel."""
    return min(max(end - begin, 0).bit_length(), LEVELS - 1)


def _room(events: int) -> int:
    return min(max(events // TILE_SHARE, TILES_LEAST), TILES_MOST)


def _first(weight: Array, top: int) -> int:
    """The level that the first events come to: they need not be boxes of the finest one before."""
    room = _room(len(weight))
    seen = _seen(weight)
    return min(_half(seen, room), top) if int(seen[0]) > room else min(_FINEST, top)


def _next(boxes: Boxes, base: int, top: int, room: int) -> int:
    """The next level, or at once the one at which the boxes alone take half of the room."""
    return min(max(_half(_seen(boxes.weight), room), base + 1), top)


def _seen(weight: Array) -> Array:
    """How many can be seen at each level."""
    levels = _engine.coarsest_levels(weight)
    counts: Array = np.bincount(levels[levels >= 0], minlength=LEVELS)
    return np.cumsum(counts[::-1])[::-1]


def _half(seen: Array, room: int) -> int:
    return int(np.count_nonzero(seen > room // 2))


def _apart(boxes: Boxes, level: int) -> tuple[Array, Array]:
    """The places of those that can be seen at this level, and of the others."""
    tall = boxes.weight >= 1 << level
    return np.flatnonzero(tall), np.flatnonzero(~tall)


def _levels(begin: int, end: int, base: int, lanes: Lanes, boxes: Boxes, cells: Cells) -> Pyramid:
    levels = {base: cells}
    rest = boxes
    for level in range(base + 1, top_of(begin, end) + 1):
        tall, short = _apart(rest, level)
        levels[level] = coarser(levels[level - 1], 1, rest, short, begin, level)
        rest = rest.take(tall)
    return Pyramid(begin, base, lanes, boxes, levels)


class _Heap(Generic[_Shape]):
    """Shapes that come in parts."""

    def __init__(self, join: Callable[[Sequence[_Shape]], _Shape], *parts: _Shape) -> None:
        self._join: Callable[[Sequence[_Shape]], _Shape] = join
        self._parts: list[_Shape] = list(parts)
        self._count = sum(map(len, parts))

    def __len__(self) -> int:
        return self._count

    def add(self, more: _Shape) -> None:
        self._parts.append(more)
        self._count += len(more)

    def whole(self) -> _Shape:
        found: _Shape = self._join([part for part in self._parts if len(part)])
        return found
