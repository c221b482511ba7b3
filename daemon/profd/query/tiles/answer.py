"""The question `tiles`: what can be seen of a window of a timeline (docs/json.md has the keys)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from profd.errors import BadInput
from profd.events import Kind
from profd.events.table import Array
from profd.limits import TILE_TRACKS_MAX
from profd.query.tiles.lanes import Lanes, TrackOrder, cut
from profd.query.tiles.seen import EARLIEST, LATEST, LEVELS, Visible, level_of
from profd.query.tiles.shapes import Boxes, Cells
from profd.query.tiles.sketch import Sketch
from profd.query.tiles.timeline import Tall, Whole, timeline_of
from profd.segments.meta import encode_json
from profd.segments.reader import TraceReader, Window

_KINDS: Final = [kind.label for kind in Kind]


def tiles(
    trace: TraceReader,
    *,
    from_ns: int | None,
    to_ns: int | None,
    width: int,
    first_track: int,
    last_track: int | None,
    limit: int,
    with_tracks: bool,
    sketch: bool,
) -> Iterator[bytes]:
    """What can be seen of a window that is `width` pixels wide, on these tracks; at most `limit` boxes and cells.

    Where there were more, pixels are larger. `sketch`: of a sample, where all events would have to be read, and that is
    long. BadInput for a window that is empty, Exhausted for too many lanes.
    """
    begin = trace.meta.start_ns or 0
    window = _window(trace, from_ns, to_ns)
    timeline = timeline_of(trace, sketch=sketch)
    order = TrackOrder(timeline.lanes, trace.tracks)
    on = (order.of_lane >= first_track) & (order.of_lane <= (len(order.keys) if last_track is None else last_track))
    seen = _fitting(timeline, window, level_of(window, width), on, limit)
    shown = _first(seen, limit, timeline.lanes, order)
    answer = encode_json(
        {
            "start_ns": trace.meta.start_ns,
            "end_ns": trace.meta.end_ns,
            "from_ns": window[0] - begin,
            "to_ns": window[1] - begin,
            "pixel_ns": 1 << shown.level,
            "left_out": len(seen) - len(shown),
            **({"sketch": {"events": timeline.events, "of": len(trace)}} if isinstance(timeline, Sketch) else {}),
            "kinds": _KINDS,
            **_boxes(shown.boxes, window[0], trace, timeline.lanes, order),
            "cells": _cells(shown, begin - window[0], timeline.lanes, order),
            **({"tracks": order.described(begin, TILE_TRACKS_MAX)} if with_tracks else {}),
        }
    )
    yield answer + b"\n"


def _window(trace: TraceReader, from_ns: int | None, to_ns: int | None) -> Window:
    """In Unix ns, as far as these have 64 bits; without an end to the trace's last event."""
    begin = trace.meta.start_ns or 0
    whole = max((trace.meta.end_ns or 0) - begin, 0) + 1
    low, high = from_ns or 0, whole if to_ns is None else to_ns
    if high <= low:
        raise BadInput(f"the window {low}..{high} ns is empty; its end must be after its start")
    first, last = (max(min(begin + edge, LATEST), EARLIEST) for edge in (low, high))
    return (first, last) if first < last else (last - 1, last)


def _fitting(timeline: Whole | Tall | Sketch, window: Window, level: int, on: Array, limit: int) -> Visible:
    """What can be seen on these lanes at the level, or at the next coarser one of which there is not too much."""
    if isinstance(timeline, Tall):
        level = timeline.from_level(window, level, on, limit)
    while True:
        found = timeline.seen(window, level)
        seen = Visible(found.level, found.boxes.take(on[found.boxes.lane]), found.cells.take(on[found.cells.lane]))
        if len(seen) <= limit or found.level < level or level == LEVELS - 1:
            return seen
        level += 1


def _first(seen: Visible, limit: int, lanes: Lanes, order: TrackOrder) -> Visible:
    """What stands furthest up on the page, where there is too much even so."""
    if len(seen) <= limit:
        return seen
    place = np.lexsort((lanes.depth, order.of_lane))
    rank = np.empty(len(place), dtype=np.int64)
    rank[place] = np.arange(len(place))
    above = np.concatenate([rank[seen.boxes.lane], rank[seen.cells.lane]])
    kept = np.zeros(len(above), dtype=bool)
    kept[np.argsort(above, kind="stable")[:limit]] = True
    return Visible(seen.level, seen.boxes.take(kept[: len(seen.boxes)]), seen.cells.take(kept[len(seen.boxes) :]))


def _boxes(boxes: Boxes, begin: int, trace: TraceReader, lanes: Lanes, order: TrackOrder) -> dict[str, Any]:
    """Columns, and the names that they number; starts from the begin of the window on."""
    codes, places = np.unique(boxes.name, return_inverse=True)
    known = trace.dictionaries["name"].values if "name" in trace.dictionaries else []
    names = [cut(known[code]) if code >= 0 else None for code in codes.tolist()]
    columns = {
        "track": order.of_lane[boxes.lane].tolist(),
        "lane": lanes.depth[boxes.lane].tolist(),
        "start": [start - begin for start in boxes.start.tolist()],
        "lasts": boxes.lasts.tolist(),
        "name": places.tolist(),
        "kind": boxes.kind.tolist(),
        "row": boxes.row.tolist(),
    }
    return {"names": names, "boxes": columns}


def _cells(seen: Visible, begin: int, lanes: Lanes, order: TrackOrder) -> dict[str, Any]:
    """Columns; `begin`: where the first pixel of the trace begins, from the begin of the window on."""
    cells: Cells = seen.cells
    return {
        "track": order.of_lane[cells.lane].tolist(),
        "lane": lanes.depth[cells.lane].tolist(),
        "start": _starts(cells.bucket, seen.level, begin),
        "count": cells.count.tolist(),
        "busy": cells.busy.tolist(),
        "kinds": cells.kinds.tolist(),
    }


def _starts(buckets: Array, level: int, begin: int) -> list[int]:
    """Where these pixels begin, from the begin of the window on."""
    most = (1 << 62) >> level
    if abs(begin) < 1 << 62 and len(buckets) and -most < int(buckets.min()) and int(buckets.max()) < most:
        found: list[int] = (begin + (buckets << level)).tolist()
        return found
    return [begin + (bucket << level) for bucket in buckets.tolist()]  # of windows that 64 bits do not hold
