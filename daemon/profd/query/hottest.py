"""The heaviest paths of a call tree, in the order in which a tree is drawn."""

from __future__ import annotations

import heapq

import numpy as np

from profd import _engine
from profd.events import NO_ROW
from profd.events.table import Array


def hottest(above: Array, weight: Array, limit: int) -> list[tuple[int, int]]:
    """(path, depth): the hottest ones from the roots on, each before those below it, the hotter first.

    `above`: the path above each, or NO_ROW. `weight`: int64.
    """
    below = _Children(above, weight)
    chosen: set[int] = set()
    waiting: list[tuple[int, int, int]] = []

    def wait_for(place: int | None) -> None:
        if place is not None:
            number = int(below.order[place])
            heapq.heappush(waiting, (-int(weight[number]), number, place))

    wait_for(below.first(NO_ROW))
    while waiting and len(chosen) < limit:
        _, number, place = heapq.heappop(waiting)
        chosen.add(number)
        wait_for(below.next(place))  # none of its siblings is hotter than the next
        wait_for(below.first(number))
    return _in_order(below, chosen)


def _in_order(below: _Children, chosen: set[int]) -> list[tuple[int, int]]:
    shown: list[tuple[int, int]] = []
    waiting = [(below.first(NO_ROW), 0)]
    while waiting:
        place, depth = waiting.pop()
        if place is None or int(below.order[place]) not in chosen:
            continue  # nor are those after it
        number = int(below.order[place])
        shown.append((number, depth))
        waiting += [(below.next(place), depth), (below.first(number), depth + 1)]
    return shown


class _Children:
    """The paths below each path in one row: `order`, where siblings stand together, the hottest first."""

    def __init__(self, above: Array, weight: Array) -> None:
        by_weight = _engine.argsort(-weight)
        self.order = by_weight[_engine.argsort(above[by_weight])]
        self._above = above[self.order]

    def first(self, path: int) -> int | None:
        """Where those below a path begin."""
        place = int(np.searchsorted(self._above, path))
        return place if place < len(self._above) and self._above[place] == path else None

    def next(self, place: int) -> int | None:
        """Where the next sibling of what stands at a place does."""
        following = place + 1
        return following if following < len(self._above) and self._above[following] == self._above[place] else None
