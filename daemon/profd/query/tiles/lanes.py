"""Lanes and tracks of a timeline: a track is a strip of a thread, and has a lane for each depth of its calls.

A key names a lane: `(thread + 1) << 34 | strip << 32 | depth` (native/engine/lanes.cpp gives them out).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from profd import _engine
from profd.errors import Exhausted
from profd.events import EventTable, Tracks
from profd.events.table import Array
from profd.limits import TILE_LANES_MAX, TILE_NAME_CHARS_MAX
from profd.query.part import numbers_at
from profd.query.tiles.shapes import Boxes, Cells

_PLACED: Final = ("start", "end", "thread", "depth", "kind", "device_type", "is_async")
COLUMNS: Final = (*_PLACED, "name")
_ALL_BOXES: Final = -1  # a level at which every event is one
STRIPS: Final = ("ranges", "calls", "work", "marks")


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lanes by number."""

    key: Array
    events: Array
    first: Array  # start of its first event, Unix ns
    until: Array  # its last end

    @property
    def track(self) -> Array:
        """The key of its track."""
        return self.key >> 32

    @property
    def depth(self) -> Array:
        """Of its calls."""
        return self.key & 0xFFFFFFFF


class Scan:
    """Puts events on lanes, in order of their start."""

    def __init__(self, begin: int, end: int) -> None:
        """`begin`: the trace's first start; an event whose end was not seen lasts to `end`."""
        self._lanes = _engine.LaneScan(begin, end, lanes_max=TILE_LANES_MAX)

    def run(self, lanes: Lanes, boxes: Boxes) -> None:
        """These run, or have run, when the first event comes."""
        self._lanes.run(lanes.key[boxes.lane], boxes.start + boxes.lasts)

    def add(self, table: EventTable, level: int) -> tuple[Boxes, Cells]:
        """The events that are boxes at this level, and cells of all others; Exhausted for too many lanes."""
        place, lane, lasts, weight, bucket, cell_lane, count, busy, kinds = self._place(table, level)
        start, kind, name = (table.column(column)[place] for column in ("start", "kind", "name"))
        boxes = Boxes(lane, start, lasts, weight, kind, name, numbers_at(table, place))
        return boxes, Cells(cell_lane, bucket, count, busy, kinds)

    def weights(self, table: EventTable) -> Array:
        """Of all events. Exhausted as above."""
        weight: Array = self._place(table, _ALL_BOXES)[3]
        return weight

    def _place(self, table: EventTable, level: int) -> tuple[Array, ...]:
        start, end, thread, depth, kind, device, is_async = (
            np.ascontiguousarray(table.column(name)) for name in _PLACED
        )
        try:
            return self._lanes.add(start, end, thread, depth, kind, device, is_async, level)
        except ValueError as error:
            raise Exhausted(f"the timeline of this trace cannot be drawn: {error}") from error

    @property
    def lanes(self) -> Lanes:
        """The lanes that there are so far."""
        return Lanes(*self._lanes.lanes())


class TrackOrder:
    """The tracks from the top of the page on: by process, thread and strip."""

    def __init__(self, lanes: Lanes, tracks: Tracks) -> None:
        self._lanes, self._tracks = lanes, tracks
        keys = np.unique(lanes.track).tolist()
        self.keys: list[int] = sorted(keys, key=self._place)
        numbers = {key: number for number, key in enumerate(self.keys)}
        of_key = np.array([numbers[key] for key in keys], dtype=np.int64)
        self.of_lane: Array = of_key[np.searchsorted(keys, lanes.track)] if keys else np.empty(0, dtype=np.int64)

    def _place(self, key: int) -> tuple[Any, ...]:
        thread, process = self._thread(key)
        number = thread.get("process", -1)
        return _sort_index(process), number, _sort_index(thread), key

    def _thread(self, key: int) -> tuple[dict[str, Any], dict[str, Any]]:
        number = (key >> 2) - 1
        thread = self._tracks.threads[number] if 0 <= number < len(self._tracks.threads) else {}
        process = thread.get("process", -1)
        known = isinstance(process, int) and 0 <= process < len(self._tracks.processes)
        return thread, self._tracks.processes[process] if known else {}

    def described(self, begin: int, most: int) -> dict[str, Any]:
        """Columns of the first tracks: what each is called, its lanes, its events; times from `begin` on."""
        lanes, number = self._lanes, self.of_lane
        count = len(self.keys)
        low, high = np.full(count, np.iinfo(np.int64).max), np.zeros(count, dtype=np.int64)
        first, until = low.copy(), np.full(count, np.iinfo(np.int64).min)
        events = np.zeros(count, dtype=np.int64)
        np.minimum.at(low, number, lanes.depth)
        np.maximum.at(high, number, lanes.depth)
        np.minimum.at(first, number, lanes.first)
        np.maximum.at(until, number, lanes.until)
        np.add.at(events, number, lanes.events)
        threads = [self._thread(key) for key in self.keys[:most]]
        return {
            "left_out": max(count - most, 0),
            "process": [_named(process) for _, process in threads],
            "thread": [_named(thread) for thread, _ in threads],
            "thread_id": [cut(str(thread.get("id", ""))) for thread, _ in threads],
            "strip": [STRIPS[key & 3] for key in self.keys[:most]],
            "first_lane": low[:most].tolist(),
            "lanes": (high - low + 1)[:most].tolist(),
            "events": events[:most].tolist(),
            "first_ns": (first - begin)[:most].tolist(),
            "last_ns": (until - begin)[:most].tolist(),
        }


def _sort_index(track: dict[str, Any]) -> float:
    given = track.get("sort_index")
    return given if isinstance(given, int | float) and given == given else 0


def _named(track: dict[str, Any]) -> str:
    parts = [str(track[key]) for key in ("name", "id") if track.get(key) not in (None, "")]
    return cut(" ".join(parts))


def cut(text: str) -> str:
    """A name as a page shows it."""
    return text if len(text) <= TILE_NAME_CHARS_MAX else f"{text[:TILE_NAME_CHARS_MAX]}…"
