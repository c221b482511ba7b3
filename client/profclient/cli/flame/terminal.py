"""A flame graph in a terminal: a line for each depth, the callers above what they called."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from profclient.cli.flame.layout import Box, whole
from profclient.cli.flame.names import shortened

_EDGE = "▏"
_PERCENT_COLUMNS = 14  # a box of fewer has its name alone


def lines(found: Sequence[Box], columns: int, told: Callable[[Box, int], str] | None = None) -> Iterator[str]:
    """The graph in so many columns. A box of less than a column is left out, as is all below it.

    `told`: what a box says behind its name, given the width of all; absent: its share.
    """
    said = told or _share
    total = whole(found)
    by_depth: defaultdict[int, list[str]] = defaultdict(list)
    for box in found:
        first, last = (round(place * columns / total) for place in (box.left, box.left + box.width))
        if last > first:
            line = by_depth[box.depth]
            line.append(" " * (first - sum(map(len, line))) + _cell(box, last - first, said(box, total)))
    for depth in sorted(by_depth):
        yield "".join(by_depth[depth]).rstrip()


def _share(box: Box, total: int) -> str:
    return f"{box.width / total:.0%}"


def _cell(box: Box, columns: int, said: str) -> str:
    room = columns - len(_EDGE)
    behind = f" {said}" if columns >= _PERCENT_COLUMNS else ""
    return _EDGE + f"{shortened(box.node['name'], room - len(behind))}{behind}"[:room].ljust(room)
