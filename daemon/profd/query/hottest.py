"""The heaviest paths of a call tree, in the order in which a tree is drawn."""

from __future__ import annotations

import heapq

import numpy as np

from profd import _engine
from profd.events import NO_ROW
from profd.events.table import Array

_NONE = -1  # no place


def hottest(above: Array, weight: Array, limit: int) -> list[tuple[int, int]]:
    """(path, depth): the hottest ones from the roots on, each before those below it, the hotter first.

    `above`: the path above each, or NO_ROW. `weight`: int64.
    """
    below = _Children(above, weight)
    chosen = set(below.order) if len(below.order) <= limit else _chosen(below, weight, limit)
    return _in_order(below, chosen)


def _chosen(below: _Children, weight: Array, limit: int) -> set[int]:
    chosen: set[int] = set()
    waiting: list[tuple[int, int, int]] = []

    def wait_for(place: int) -> None:
        if place != _NONE:
            number = below.order[place]
            heapq.heappush(waiting, (-int(weight[number]), number, place))

    wait_for(below.root)
    while waiting and len(chosen) < limit:
        _, number, place = heapq.heappop(waiting)
        chosen.add(number)
        wait_for(below.following[place])  # none of its siblings is hotter than the next
        wait_for(below.first[number])
    return chosen


def _in_order(below: _Children, chosen: set[int]) -> list[tuple[int, int]]:
    shown: list[tuple[int, int]] = []
    waiting = [(below.root, 0)]
    while waiting:
        place, depth = waiting.pop()
        if place == _NONE or (number := below.order[place]) not in chosen:
            continue  # nor are those after it
        shown.append((number, depth))
        waiting += [(below.following[place], depth), (below.first[number], depth + 1)]
    return shown


class _Children:
    """The paths below each path in one row: `order`, where siblings stand together, the hottest first.

    Lists, as they are looked at one by one. `root`: the place of the first root; `first`: by path, that of the first
    one below it; `following`: by place, that of the next sibling.
    """

    def __init__(self, above: Array, weight: Array) -> None:
        by_weight = _engine.argsort(-weight)
        order = by_weight[_engine.argsort(above[by_weight])]
        callers = above[order]
        begins = np.flatnonzero(np.diff(callers, prepend=NO_ROW - 1))
        first = np.full(len(above) + 1, _NONE)  # the last is NO_ROW's
        first[callers[begins]] = begins
        following = np.arange(1, len(order) + 1)
        following[begins[1:] - 1] = _NONE
        following[-1:] = _NONE
        self.order: list[int] = order.tolist()
        self.first: list[int] = first.tolist()
        self.following: list[int] = following.tolist()
        self.root = self.first[-1]
