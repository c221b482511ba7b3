"""LaneScan refuses what it cannot place; what it finds is compared in tests/unit/profd/query/tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from profd import _engine

TYPES = (np.int64, np.int64, np.int32, np.int32, np.uint8, np.uint8, np.uint8)


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
