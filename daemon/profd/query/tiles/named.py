"""Which names a trace has in which part of it, how often, and the first event of each: what `search` reads, once it is
kept (`kept`). A trace has few names; one with too many in too many parts is searched event by event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.events import NO_END, EventTable
from profd.events.table import Array
from profd.limits import SEARCH_NAMES_BYTES_MAX, SEARCH_SHARE
from profd.query.part import numbers_at

PARTS: Final = 1000
UNENDED: Final = -1  # in the place of a duration
_LATEST: Final = int(np.iinfo(np.int64).max)


def part_ns(begin: int, end: int, parts: int) -> int:
    """How long a part of the trace is, of so many."""
    return max(-(-(end - begin + 1) // parts), 1)


@dataclass(frozen=True, slots=True)
class Named:
    """By part, and in it by row: of one name in one part how often, and its first event; `start` in Unix ns."""

    part: Array
    name: Array  # code
    count: Array
    row: Array
    start: Array
    lasts: Array  # ns, or UNENDED

    def __len__(self) -> int:
        return len(self.part)


class NameScan:
    """Takes in the events of a trace in their order."""

    def __init__(self, begin: int, end: int, events: int) -> None:
        self._begin, self._long = begin, part_ns(begin, end, PARTS)
        self._most = events // SEARCH_SHARE
        self._found: list[list[Array]] = []
        self._held = 0

    def add(self, table: EventTable) -> None:
        """The next stretch: with `start`, `end` and `name`."""
        start = table.columns["start"]
        if not len(start) or self._held > self._most:
            return
        first, last = (min(max((int(at) - self._begin) // self._long, 0), PARTS - 1) for at in (start[0], start[-1]))
        edges = [min(self._begin + part * self._long, _LATEST) for part in range(first + 1, last + 1)]
        cuts = [0, *np.searchsorted(start, np.array(edges, dtype=np.int64)).tolist(), len(start)]
        for part, low, high in zip(range(first, last + 1), cuts[:-1], cuts[1:], strict=True):
            self._add(table, part, low, high)

    def _add(self, table: EventTable, part: int, low: int, high: int) -> None:
        name = table.column("name")[low:high]
        counts = np.bincount(name + 1)[1:]  # events without a name have code -1
        seen = np.flatnonzero(counts)
        place = np.empty(len(counts) + 1, dtype=np.int64)  # theirs is the last one
        place[name[::-1]] = np.arange(high - 1, low - 1, -1)  # what is written last stays
        place = place[seen]
        start, end = table.columns["start"][place], table.column("end")[place]
        lasts = np.where(end == NO_END, UNENDED, np.maximum(end - start, 0))
        self._found.append([np.full(len(seen), part), seen, counts[seen], numbers_at(table, place), start, lasts])
        self._held += len(seen)

    def named(self, names: Sequence[str]) -> Named | None:
        """All of it; `names` by code. None where it would take more room than it saves time."""
        if not self._found or self._held > self._most or sum(map(len, names)) > SEARCH_NAMES_BYTES_MAX:
            return None
        part, name, count, row, start, lasts = map(np.concatenate, zip(*self._found, strict=True))
        # A part that began in one table and went on in the next has a name twice.
        order = np.lexsort((row, name, part))
        leads = np.ones(len(order), dtype=bool)
        leads[1:] = (part[order][1:] != part[order][:-1]) | (name[order][1:] != name[order][:-1])
        first = order[leads]
        count = np.add.reduceat(count[order], np.flatnonzero(leads))
        by_row = np.argsort(row[first])
        kept = first[by_row]
        return Named(part[kept], name[kept], count[by_row], row[kept], start[kept], lasts[kept])
