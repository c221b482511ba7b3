"""A sketch of a timeline, until there is a pyramid: by a row group of each stretch of segments, of any trace as many.

Boxes are events of the sample. Cells are an estimate: what was found in a row group, by lane, stands for its whole
stretch, spread over each segment as densely as the segment has events. Where segments begin, and how many events each
has, the trace's own `meta.json` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from profd import limits
from profd.events.table import Array
from profd.query.tiles.lanes import COLUMNS, Scan
from profd.query.tiles.pyramid import top_of
from profd.query.tiles.seen import Visible, boxes_in, buckets_of, cells_in
from profd.query.tiles.shapes import Boxes, Cells, merged
from profd.segments.reader import TraceReader, Window

_ALL: Final = -1  # a level at which every event is a box
_PIXELS: Final = 16  # of a segment: nothing is known of when its events begin within it
_SHORTER: Final = limits.TILE_WIDTH_MAX.bit_length()  # levels: no box is shorter than the narrowest pixel of the whole


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Segments, and what was found in a row group of them."""

    segments: range
    rows: int  # of the row group
    tall: Boxes  # that may be seen of it
    short: Array  # of all others; `_sums`


class Sketch:
    """From a sample."""

    def __init__(self, trace: TraceReader) -> None:
        """Exhausted for too many lanes."""
        self._trace = trace
        self._begin, self._end = trace.meta.start_ns or 0, trace.meta.end_ns or 0
        self._least = 1 << max(top_of(self._begin, self._end) - _SHORTER, 0)
        scan = Scan(self._begin, self._end)
        edges = _edges(len(trace.segments))
        stretches = [range(first, last) for first, last in pairwise(edges)]
        chosen = [one[len(one) // 2] if one.start else 0 for one in stretches]
        tables = trace.sampled(COLUMNS, chosen)
        self._stretches = [
            self._stretch(part, scan.add(table, _ALL)[0]) for part, table in zip(stretches, tables, strict=True)
        ]
        self.lanes = scan.lanes
        self.events = sum(one.rows for one in self._stretches)

    def _stretch(self, segments: range, found: Boxes) -> _Stretch:
        tall = found.lasts >= self._least
        return _Stretch(segments, len(found), found.take(tall), _sums(found.take(~tall)))

    def seen(self, window: Window, level: int) -> Visible:
        """At this level, or a coarser one."""
        top = top_of(self._begin, self._end)
        finest = (self._end - self._begin) // (len(self._trace.segments) * _PIXELS)
        level = min(max(level, finest.bit_length() - 1), top)
        while level < top and self._room(window, level) > limits.TILE_ROWS_MAX:
            level += 1
        boxes = [one.tall.take(one.tall.lasts >= 1 << level) for one in self._stretches]
        cells = merged(Cells.joined([self._cells(one, window, level) for one in self._stretches]))
        return Visible(level, boxes_in(Boxes.joined(boxes), window, level), cells_in(cells, window, level, self._begin))

    def _room(self, window: Window, level: int) -> int:
        """How many cells there would be at most."""
        return len(self.lanes.key) * sum(len(self._density(one.segments, window, level)[1]) for one in self._stretches)

    def _cells(self, one: _Stretch, window: Window, level: int) -> Cells:
        """Of a stretch: as many events in each pixel as the segments there have, on lanes as in the sample."""
        first, share = self._density(one.segments, window, level)
        count, busy, kinds = self._together(one.short, _sums(one.tall.take(one.tall.lasts < 1 << level)))
        lanes, pixels = np.flatnonzero(count), np.flatnonzero(share)
        scale = share[pixels, None] / one.rows
        found = Cells(
            np.tile(lanes, len(pixels)),
            np.repeat(pixels + first, len(lanes)),
            np.rint(scale * count[lanes]).astype(np.int64).ravel(),
            np.rint(scale * busy[lanes]).astype(np.int64).ravel(),
            np.tile(kinds[lanes], len(pixels)),
        )
        return found.take(found.count > 0)

    def _together(self, *sums: Array) -> Array:
        found = np.zeros((3, len(self.lanes.key)), dtype=np.int64)
        for one in sums:
            found[:2, : one.shape[1]] += one[:2]
            found[2, : one.shape[1]] |= one[2]
        return found

    def _density(self, segments: range, window: Window, level: int) -> tuple[int, Array]:
        """(a pixel, how many events begin in it and in each one after it, as far as the window goes)"""
        infos = self._trace.segments
        edges = [infos[number].start_ns for number in segments]
        after = infos[segments.stop].start_ns if segments.stop < len(infos) else self._end + 1
        inside = (max(window[0], edges[0]), min(window[1], max(after, edges[0] + 1)))
        if inside[0] >= inside[1]:
            return 0, np.empty(0)
        low, high = buckets_of(inside, level, self._begin)
        share = np.zeros(high - low + 1)
        for number, start, until in zip(segments, edges, [*edges[1:], after], strict=True):
            until = max(min(until, infos[number].end_ns + 1), start + 1)
            first, last = buckets_of((start, until), level, self._begin)
            from_, to = max(first, low), min(last, high) + 1
            if from_ < to:
                share[from_ - low : to - low] += infos[number].rows / (last - first + 1)
        return low, share


def _edges(segments: int) -> list[int]:
    """Where stretches of segments begin, and where the last one ends: the first segment is one of its own."""
    count = min(segments, limits.SKETCH_GROUPS)
    return [0, *(1 + number * (segments - 1) // max(count - 1, 1) for number in range(count))]


def _sums(boxes: Boxes) -> Array:
    """Three rows, by lane: how many, how long together, and the bits of their kinds."""
    found = np.zeros((3, int(boxes.lane.max()) + 1 if len(boxes) else 0), dtype=np.int64)
    found[0] = np.bincount(boxes.lane, minlength=found.shape[1])
    found[1] = np.bincount(boxes.lane, boxes.lasts, minlength=found.shape[1])
    np.bitwise_or.at(found[2], boxes.lane, np.int64(1) << (boxes.kind.astype(np.int64) & 31))
    return found
