"""The tiles of windows of a stored trace against a drawing of every event, by arrays and without the engine."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from profd.events import NO_END, EventTable, Kind
from profd.query import rules
from profd.query.tiles.lanes import COLUMNS
from profd.query.tiles.seen import Visible, level_of
from profd.query.tiles.timeline import timeline_of
from profd.segments.reader import TraceReader
from profd.segments.rollups import Rollups

from bench.ours.tiling import RULES, WIDTH

MARKS: Final = (Kind.INSTANT, Kind.MEMORY, Kind.COUNTER)
RANGES: Final = (Kind.GPU_USER_ANNOTATION, Kind.TRACE, Kind.OVERHEAD)


def compare(directory: str, kept: str, windows: int) -> dict[str, int]:
    """Of a trace and its rollups: windows, those that differ, and the boxes and cells that were compared."""
    reader = TraceReader(Path(directory), Rollups(Path(kept), None, 0, RULES))
    drawn = _drawn(reader, _windows(reader, windows))
    timeline = timeline_of(TraceReader(Path(directory), Rollups(Path(kept), None, 0, RULES)))
    differ = shapes = 0
    for one in drawn:
        told = one.told()
        differ += _of_tiles(timeline, one) != told
        shapes += sum(map(len, told))
    return {"windows": len(drawn), "differ": differ, "shapes": shapes}


@dataclass(slots=True)
class _Window:
    low: int
    high: int
    level: int
    begin: int  # of the trace
    boxes: list[np.ndarray] = field(default_factory=list)
    cells: list[np.ndarray] = field(default_factory=list)

    def add(self, lane: Any, start: Any, lasts: Any, weight: Any, kind: Any, first: int) -> None:
        """The events of a table, from this row on."""
        pixel = 1 << self.level
        edge = self.begin + (self.high - 1 - self.begin) // pixel * pixel + pixel  # of what is counted in cells
        until = int(np.searchsorted(start, edge))
        tall = weight[:until] >= pixel
        seen = (start[:until] < self.high) & ((start[:until] >= self.low) | (start[:until] + lasts[:until] > self.low))
        places = np.flatnonzero(tall & seen)
        self.boxes.append(np.stack([lane[places], start[places], lasts[places], kind[places], places + first], axis=1))
        since = int(np.searchsorted(start, self.begin + (self.low - self.begin) // pixel * pixel))
        short = since + np.flatnonzero(~tall[since:])
        bucket = (start[short] - self.begin) // pixel
        ones = np.ones(len(short), dtype=np.int64)
        self.cells.append(_summed(np.stack([lane[short], bucket, ones, lasts[short], 1 << kind[short]], axis=1)))

    def told(self) -> tuple[set[tuple[int, ...]], set[tuple[int, ...]]]:
        """(boxes, cells) of all tables."""
        boxes = {tuple(row) for part in self.boxes for row in part.tolist()}
        cells = _summed(np.concatenate(self.cells)) if self.cells else np.empty((0, 5), np.int64)
        return boxes, {tuple(row) for row in cells.tolist()}


def _summed(cells: np.ndarray) -> np.ndarray:
    """One row for each lane and pixel: these, events, ns, kinds."""
    if not len(cells):
        return cells
    cells = cells[np.lexsort((cells[:, 1], cells[:, 0]))]
    new = np.flatnonzero(np.append(True, (cells[1:, :2] != cells[:-1, :2]).any(axis=1)))
    sums = np.add.reduceat(cells[:, 2:4], new)
    return np.column_stack([cells[new, :2], sums, np.bitwise_or.reduceat(cells[:, 4], new)])


def _windows(reader: TraceReader, count: int) -> list[_Window]:
    """Of all widths, from a quarter of the trace down to some events."""
    begin, end = reader.meta.start_ns or 0, reader.meta.end_ns or 0
    rng, found = random.Random(1), []
    for _ in range(count):
        wide = max(int((end - begin) * 2 ** -rng.uniform(2, 24)), WIDTH)
        low = begin + rng.randrange(0, end - begin - wide + 1)
        found.append(_Window(low, low + wide, level_of((low, low + wide), WIDTH), begin))
    return found


def _drawn(reader: TraceReader, windows: list[_Window]) -> list[_Window]:
    until: dict[int, int] = {}  # of each lane
    for table in reader.iterate(COLUMNS, args=False):
        lane, start, lasts = _placed(table, reader.meta.end_ns or 0)
        weight = np.maximum(lasts, _gaps(lane, start, start + lasts, until))
        kind = table.column("kind").astype(np.int64)
        latest = int((start + lasts).max())
        for one in windows:
            pixel = 1 << one.level
            if start[0] < one.high + pixel and max(latest, int(start[-1])) >= one.low - pixel:
                one.add(lane, start, lasts, weight, kind, table.first_row)
    return windows


def _placed(table: EventTable, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(number of the lane of each event, its start, how long it lasts)"""
    kinds, start, end = table.column("kind"), table.columns["start"], table.column("end")
    cpu = rules.is_cpu(table.column("device_type"))
    marks = rules.is_kind(kinds, *MARKS)
    ranges = rules.is_kind(kinds, *RANGES) | (table.column("is_async") > 0)
    strip = np.where(marks, 3, np.where(ranges, 0, np.where(cpu, 1, 2)))
    depth = np.where(strip == 1, table.column("depth"), 0)
    lasts = np.where(end == NO_END, np.where(marks, 0, last - start), end - start)
    return (table.column("thread").astype(np.int64) + 1) << 34 | strip << 32 | depth, start, lasts


def _gaps(lane: np.ndarray, start: np.ndarray, end: np.ndarray, until: dict[int, int]) -> np.ndarray:
    """How long after the end of all before it on its lane each event begins."""
    gaps = np.empty(len(lane), dtype=np.int64)
    for one in np.unique(lane).tolist():
        places = np.flatnonzero(lane == one)
        reached = np.maximum.accumulate(end[places])
        before = np.append(until.get(one, np.iinfo(np.int64).min // 2), reached[:-1])
        if one in until:
            before = np.maximum(before, until[one])
            until[one] = max(until[one], int(reached[-1]))
        else:
            until[one] = int(reached[-1])
        gaps[places] = np.where(before < 0, np.iinfo(np.int64).max, start[places] - before)
    return gaps


def _of_tiles(timeline: Any, window: _Window) -> tuple[set[tuple[int, ...]], set[tuple[int, ...]]]:
    seen: Visible = timeline.seen((window.low, window.high), window.level)
    assert seen.level == window.level
    key = timeline.lanes.key
    boxes = [key[seen.boxes.lane], seen.boxes.start, seen.boxes.lasts, seen.boxes.kind, seen.boxes.row]
    cells = [key[seen.cells.lane], seen.cells.bucket, seen.cells.count, seen.cells.busy, seen.cells.kinds]
    shapes = [np.stack([part.astype(np.int64) for part in parts], axis=1) for parts in (boxes, cells)]
    return {tuple(row) for row in shapes[0].tolist()}, {tuple(row) for row in shapes[1].tolist()}
