"""The cost of decoding an XSpace, counted before anything is decoded.

A few bytes can stand for a plane, a line or a name, each of which costs microseconds: a small file of
nothing but these would keep a worker for minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from profd import limits
from profd._scan import wire_fields
from profd.decode.xspace_plane import EVENT_METADATA, LINES, STAT_METADATA, STATS
from profd.decode.xspace_wire import Span, Wire
from profd.errors import Exhausted

_ENTRIES: Final = (EVENT_METADATA, STAT_METADATA, STATS)
_WANTED: Final = sum(1 << number for number in (LINES, *_ENTRIES))


def check_cost(wire: Wire, planes: Sequence[Span]) -> None:
    """Raise Exhausted for more lines or entries of metadata than are decoded."""
    lines = entries = 0
    for plane in planes:
        number = wire_fields(wire.array, plane.first, plane.last, _WANTED, limits.XSPACE_FIELDS_MAX)[0]
        counts = np.bincount(number, minlength=STATS + 1)
        lines += int(counts[LINES])
        entries += sum(int(counts[entry]) for entry in _ENTRIES)
        check(lines, limits.XSPACE_LINES_MAX, "lines")
        check(entries, limits.XSPACE_METADATA_ENTRIES_MAX, "names and statistics of planes")


def check(found: int, allowed: int, what: str) -> None:
    """Raise Exhausted above a limit."""
    if found > allowed:
        raise Exhausted(
            f"the XSpace has more than {allowed:,} {what}, the most that are decoded: "
            "profile for a shorter time, or fewer hosts at once"
        )
