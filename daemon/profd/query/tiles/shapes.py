"""What a timeline is drawn of: boxes, which are events, and cells, which stand for several. Columns of equal length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np

from profd import _engine
from profd.events.table import Array


@dataclass(frozen=True, slots=True)
class _Columns:
    lane: Array  # number of its lane

    def on(self, numbers: Array) -> Self:
        """The same with other numbers of lanes."""
        return replace(self, lane=numbers[self.lane])

    def take(self, rows: Array) -> Self:
        """Those of these places, or with a flag."""
        return type(self)(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """One after the other."""
        if not parts:
            return cls(*(np.empty(0, dtype=np.int64) for _ in fields(cls)))
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


@dataclass(frozen=True, slots=True)
class Boxes(_Columns):
    """Events, each on its lane."""

    start: Array  # Unix ns
    lasts: Array  # ns, 0 for a moment
    weight: Array  # ns: its duration, or how long after the others of its lane it begins, whichever is more
    kind: Array  # code of events.Kind
    name: Array  # code of the reader's dictionary "name", -1: it has none
    row: Array  # of the trace

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class Cells(_Columns):
    """Pixels of lanes, each with what begins in it and is too short to be seen."""

    bucket: Array  # of so many pixels from the trace's first event on
    count: Array  # events
    busy: Array  # ns that they last together
    kinds: Array  # a bit for each code of events.Kind among them

    def __len__(self) -> int:
        return len(self.bucket)


def merged(cells: Cells) -> Cells:
    """One for each pixel and lane, in order of both."""
    if not len(cells):
        return cells
    order = _by_pixel(cells)
    bucket, lane = cells.bucket[order], cells.lane[order]
    first = np.flatnonzero(np.concatenate(([True], (bucket[1:] != bucket[:-1]) | (lane[1:] != lane[:-1]))))
    return Cells(
        bucket=bucket[first],
        lane=lane[first],
        count=np.add.reduceat(cells.count[order], first),
        busy=np.add.reduceat(cells.busy[order], first),
        kinds=np.bitwise_or.reduceat(cells.kinds[order], first),
    )


def _by_pixel(cells: Cells) -> Array:
    low, lanes = int(cells.bucket.min()), int(cells.lane.max()) + 1
    if (int(cells.bucket.max()) - low + 1) * lanes >= 1 << 63:
        order: Array = np.lexsort((cells.lane, cells.bucket))
        return order
    return _engine.argsort((cells.bucket - low) * lanes + cells.lane)


def coarser(cells: Cells, levels: int, newly: Boxes, begin: int, level: int) -> Cells:
    """Cells of 2^level ns: of finer ones by so many levels, and of the boxes that are too short from now on."""
    blurred = Cells(
        lane=newly.lane,
        bucket=(newly.start - begin) >> level,
        count=np.ones(len(newly), dtype=np.int64),
        busy=newly.lasts,
        kinds=np.left_shift(1, newly.kind, dtype=np.int32),
    )
    return merged(Cells.joined([replace(cells, bucket=cells.bucket >> levels), blurred]))
