"""The events of each line and plane, and the launches of each device, told apart once for all of them.

A trace may have hundreds of devices with tens of thousands of streams: to look at all events for each takes minutes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profd.derive.timeline.groups import NO_GROUP
from profd.derive.timeline.space import MISSING, Space
from profd.events.table import Array


@dataclass(frozen=True, slots=True)
class Places:
    """The rows of a space by their lines."""

    _order: Array  # all rows, those of a line together, in their order there
    _begins: Array  # of each line in `_order`, and the end

    @classmethod
    def of(cls, space: Space) -> Places:
        """Read the lines of all rows."""
        counts = np.bincount(space.line, minlength=len(space.lines))
        return cls(np.argsort(space.line, kind="stable"), np.concatenate([[0], np.cumsum(counts)]))

    def rows(self, line: int) -> Array:
        """Of a line, ascending."""
        found: Array = self._order[self._begins[line] : self._begins[line + 1]]
        return found

    def count(self, line: int) -> int:
        """How many rows a line has."""
        return int(self._begins[line + 1] - self._begins[line])

    def rows_of_plane(self, space: Space, plane: int) -> Array:
        """Of all lines of a plane, ascending."""
        own = [self.rows(line) for line in space.lines_of(plane)]
        return np.sort(np.concatenate(own)) if own else np.empty(0, dtype=np.int64)


def launches(space: Space, group: Array) -> dict[int, list[Array]]:
    """The calls on a host that launched work of a group on a device: number of the device -> rows of each group.

    Calls named cu… are mostly no launches and do not count. Groups are in their order.
    """
    called = np.array([not word.startswith("cu") for word in space.words], dtype=np.bool_)
    device = space.number("device_id")
    rows = np.flatnonzero((device != MISSING) & (space.correlation != MISSING) & (group != NO_GROUP))
    rows = rows[~space.on_device()[rows]]
    rows = rows[called[space.name[rows]]]
    rows = rows[np.lexsort((group[rows], device[rows]))]
    found: dict[int, list[Array]] = {}
    if len(rows):
        differ = (np.diff(device[rows]) != 0) | (np.diff(group[rows]) != 0)
        for own in np.split(rows, np.flatnonzero(differ) + 1):
            found.setdefault(int(device[own[0]]), []).append(own)
    return found
