"""LaneScan refuses what it cannot place; what it finds is compared in tests/unit/profd/query/tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from profd import _engine

TYPES = (np.int64, np.int64, np.int32, np.int32, np.uint8, np.uint8, np.uint8)
CELLS = (np.int32, np.int64, np.int64, np.int64, np.int32)
BOXES = (np.int32, np.int64, np.int64, np.uint8)


def columns(start: list[int], thread: int = 0) -> Any:
    """Start, end, thread, depth, kind, device type, asynchronous."""
    values = (start, start, thread, 0, 1, 1, 0)
    return [np.full(len(start), value, dtype=kind) for value, kind in zip(values, TYPES, strict=True)]


@pytest.mark.parametrize(
    ("given", "level", "says"),
    [
        (columns([2, 1]), 0, "not in start order"),
        (columns([1], thread=1 << 28), 0, "a thread is beyond"),
        (columns([1], thread=-2), 0, "a thread is beyond"),
        (columns([1]), 63, "no such level"),
        (columns([1])[:-1] + columns([])[-1:], 0, "is_async has 0 rows"),
    ],
    ids=["order", "thread", "below", "level", "length"],
)
def test_what_is_refused(given: Any, level: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        _engine.LaneScan(0, 9).add(*given, level=level)


def test_an_end_before_the_start_and_times_of_all_64_bits() -> None:
    scan = _engine.LaneScan(-(2**63) + 1, 2**63 - 1)
    given = columns([-(2**63) + 1, 0, 2**63 - 1])
    given[1] = np.array([2**63 - 1, -5, -(2**63)], dtype=np.int64)
    place, _, lasts, weight, *_ = scan.add(*given, level=-1)
    assert place.tolist() == [0, 1, 2]
    assert lasts.tolist() == [2**63 - 1, 0, 0]
    assert weight.tolist() == [2**63 - 1, 0, 2**63 - 1]


def test_the_coarsest_level_of_a_weight() -> None:
    weights = [0, -1, -(2**63), *(2**power + more for power in range(63) for more in (-1, 0, 1)), 2**63 - 1]
    want = [weight.bit_length() - 1 if weight > 0 else -1 for weight in weights]
    assert _engine.coarsest_levels(np.array(weights, dtype=np.int64)).tolist() == want


def folded(cells: Sequence[tuple[int, ...]], levels: int, boxes: Sequence[tuple[int, ...]], level: int) -> Any:
    """Of (lane, pixel, events, their durations, kinds) and (lane, start, duration, kind), as tuples of the first."""
    given = np.array(cells, dtype=np.int64).reshape(-1, 5).T
    more = np.array(boxes, dtype=np.int64).reshape(-1, 4).T
    of_cells: Any = [np.ascontiguousarray(one, kind) for one, kind in zip(given, CELLS, strict=True)]
    of_boxes: Any = [np.ascontiguousarray(one, kind) for one, kind in zip(more, BOXES, strict=True)]
    found = _engine.fold_cells(*[*of_cells, levels, *of_boxes, 0, level])
    return [tuple(row) for row in np.array([one.tolist() for one in found], dtype=object).T.tolist()]


def test_cells_and_boxes_become_one_for_each_pixel_and_lane() -> None:
    cells = [(2, -3, 1, 5, 1), (0, 4, 2, 7, 2), (1, 4, 1, 1, 4), (1, 5, 3, 2, 8)]
    boxes = [(1, 8, 3, 5), (3, 9, 1, 0), (0, 1000, 2**63 - 1, 1), (0, 1001, 1, 1)]
    assert folded(cells, 1, boxes, 2) == [
        (2, -2, 1, 5, 1), (0, 2, 2, 7, 2), (1, 2, 5, 6, 4 | 8 | 32), (3, 2, 1, 1, 1), (0, 250, 2, 2**63 - 1, 2),
    ]  # fmt: skip
    assert folded([], 0, [], 0) == []


@pytest.mark.parametrize(
    ("cells", "boxes", "levels", "says"),
    [
        ([(0, 2, 1, 1, 1), (0, 1, 1, 1, 1)], [], 0, "cells are not in order"),
        ([], [(0, 2, 1, 1), (0, 1, 1, 1)], 0, "boxes are not in start order"),
        ([], [], 63, "no such level"),
    ],
    ids=["cells", "boxes", "level"],
)
def test_what_is_not_folded(cells: Any, boxes: Any, levels: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        folded(cells, levels, boxes, 0)
