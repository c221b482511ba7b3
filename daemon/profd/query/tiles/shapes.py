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

    def take(self, rows: Array | slice) -> Self:
        """The shapes at these places, or with a flag."""
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
    """One for each pixel and lane, in order of both; they come in order of their pixels."""
    return coarser(cells, 0, Boxes.joined([]), np.empty(0, dtype=np.int64), 0, 0)


def coarser(cells: Cells, levels: int, boxes: Boxes, short: Array, begin: int, level: int) -> Cells:
    """Cells of 2^level ns: of finer ones by so many levels, and of the boxes (their places) that are too short now.

    Cells come in order of their pixels, and boxes in order of their start.
    """
    lane, bucket, count, busy, kinds = _engine.fold_cells(
        _of(cells.lane, np.int32),
        _of(cells.bucket, np.int64),
        _of(cells.count, np.int64),
        _of(cells.busy, np.int64),
        _of(cells.kinds, np.int32),
        levels,
        _of(boxes.lane[short], np.int32),
        _of(boxes.start[short], np.int64),
        _of(boxes.lasts[short], np.int64),
        _of(boxes.kind[short], np.uint8),
        begin,
        level,
    )
    return Cells(lane, bucket, count, busy, kinds)


def _of(values: Array, kind: type[np.generic]) -> Array:
    """As the engine takes them: what is empty may be of any type."""
    return np.ascontiguousarray(values, dtype=kind)
