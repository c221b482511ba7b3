"""Which boxes and cells lie in a window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profd.query.tiles.shapes import Boxes, Cells
from profd.segments.reader import Window

LEVELS = 63
EARLIEST, LATEST = -(1 << 63) + 1, (1 << 63) - 1  # ns, of a window's edges


@dataclass(frozen=True, slots=True)
class Visible:
    """What can be seen in a window, at pixels of 2^level ns."""

    level: int
    boxes: Boxes
    cells: Cells

    def __len__(self) -> int:
        return len(self.boxes) + len(self.cells)


def level_of(window: Window, width: int) -> int:
    """The level of the largest pixel of which at least `width` fit into the window, 0 where a ns is larger."""
    low, high = window
    return min(max(((high - low) // width).bit_length() - 1, 0), LEVELS - 1)


def boxes_in(boxes: Boxes, window: Window, level: int) -> Boxes:
    """The boxes that can be seen at this level and have a part in the window [from, to), or begin at its begin."""
    low, high = window
    inside = (boxes.start < high) & ((boxes.start >= low) | (boxes.start + boxes.lasts > low))
    return boxes.take(np.flatnonzero(inside & (boxes.weight >= 1 << level)))


def cells_in(cells: Cells, window: Window, level: int, begin: int) -> Cells:
    """The cells with a part in the window; `begin`: where the first pixel begins."""
    low, high = buckets_of(window, level, begin)
    return cells.take(np.flatnonzero((cells.bucket >= low) & (cells.bucket <= high)))


def buckets_of(window: Window, level: int, begin: int) -> tuple[int, int]:
    """The first and the last pixel that a window touches, as far as 64 bits have them."""
    low, high = window
    most = np.iinfo(np.int64).max
    return max((low - begin) >> level, -most), min((high - 1 - begin) >> level, most)
