"""The input of the derivation: the events of all planes as arrays."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from profd.derive.timeline.symbols import Symbols
from profd.events.table import Array

MISSING: Final = int(np.iinfo(np.int64).min)  # of a number that an event does not have
NO_TEXT: Final = -1
# Stats that the rules read; what else an event says does not matter to them.
NUMBERS: Final = (
    "program_id", "scope_range_id", "cuda_graph_id", "cuda_graph_exec_id", "device_id", "group_id",
    "_r", "step_num", "_pt", "_p", "_ct", "_c", "_a", "id", "iter_num",
)  # fmt: skip
TEXTS: Final = ("kernel_details", "hlo_module", "hlo_op", "tf_op", "step_name", "source", "graph_type")
_DEVICE: Final = re.compile(r"/device:(GPU|TPU):(\d{1,9})$")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a plane: a thread, or a stream of a device."""

    plane: int
    id: int
    name: str


@dataclass(slots=True)
class Space:
    """Events in any order, without those of lines that a viewer derived.

    `numbers` and `texts` may lack keys of NUMBERS and TEXTS that no event has.
    """

    planes: list[str]
    lines: list[Line]
    start: Array  # int64 ps, of one clock
    end: Array  # int64 ps, not before start
    line: Array  # int64: which of `lines`
    name: Array  # int64: which of `words`
    correlation: Array  # int64, MISSING
    numbers: dict[str, Array]  # int64, MISSING
    texts: dict[str, Array]  # int64: which of `words`, NO_TEXT
    words: list[str]
    scope_parents: dict[int, int] = field(default_factory=dict)
    symbols: Symbols = field(default_factory=Symbols)
    _devices: list[tuple[str, int] | None] = field(init=False, repr=False, compare=False)  # of each plane
    _lines_of: dict[int, list[int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Of planes and lines that are all there: a trace may have hundreds of devices with tens of thousands."""
        found = map(_DEVICE.match, self.planes)
        self._devices = [(one[1], int(one[2])) if one else None for one in found]
        self._lines_of = {}
        for number, line in enumerate(self.lines):
            self._lines_of.setdefault(line.plane, []).append(number)

    def __len__(self) -> int:
        return len(self.start)

    def number(self, key: str) -> Array:
        """A stat of all events, MISSING where they have none; not to be written to."""
        have = self.numbers.get(key)
        return _all(MISSING, len(self)) if have is None else have

    def text(self, key: str) -> Array:
        """A text of all events, as indices of `words`, NO_TEXT where they have none; not to be written to."""
        have = self.texts.get(key)
        return _all(NO_TEXT, len(self)) if have is None else have

    def device_of_plane(self, plane: int) -> tuple[str, int] | None:
        """("GPU" or "TPU", number), None for a host."""
        return self._devices[plane]

    def lines_of(self, plane: int) -> list[int]:
        """The indices of a plane's lines."""
        return self._lines_of.get(plane, [])

    def on_device(self, kind: str = "") -> Array:
        """Which events are on the plane of a device, or of a kind of devices ("GPU" or "TPU")."""
        places = [place is not None and kind in ("", place[0]) for place in self._devices]
        devices = np.array([places[line.plane] for line in self.lines], dtype=np.bool_)
        found: Array = devices[self.line] if len(devices) else np.zeros(len(self), dtype=np.bool_)
        return found


def _all(value: int, size: int) -> Array:
    """One value for all events, in the memory of one: a stat that no event has is asked for by each stream."""
    return np.broadcast_to(np.int64(value), size)


def in_time_order(space: Space, rows: Array) -> Array:
    """By start; of those that start together the longest first, as what encloses precedes what it encloses."""
    order: Array = rows[np.lexsort((-space.end[rows], space.start[rows]))]
    return order


def in_device_order(space: Space, rows: Array) -> Array:
    """By start; of those that start together the shortest first, as XProf 2.24.2 takes the events of devices."""
    order: Array = rows[np.lexsort((space.end[rows], space.start[rows]))]
    return order
