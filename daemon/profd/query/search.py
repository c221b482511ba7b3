"""The question `search`: which events have a text in their name, and where in the trace (docs/json.md has the keys)."""

from __future__ import annotations

from typing import Any

import numpy as np

from profd.errors import BadInput
from profd.events import NO_END
from profd.query import rules
from profd.query.tiles import kept
from profd.query.tiles.lanes import cut
from profd.query.tiles.named import PARTS, UNENDED, Named, part_ns
from profd.segments.reader import TraceReader


def search(trace: TraceReader, *, text: str, parts: int) -> dict[str, Any]:
    """How many events have it, in any case, and the first of them in each of so many parts of the trace.

    BadInput for an empty text.
    """
    if not text:
        raise BadInput("say what to search for: `text` is empty")
    wanted = text.lower()
    known = kept.named(trace) if parts == PARTS else None
    return _by_event(trace, wanted, parts) if known is None else _by_name(trace, wanted, *known)


def _by_name(trace: TraceReader, wanted: str, names: list[str], known: Named) -> dict[str, Any]:
    """By the names that the index has, and where it has them."""
    have = np.array([wanted in name.lower() for name in names], dtype=bool)
    found = np.flatnonzero(have[known.name]) if len(names) else np.zeros(0, dtype=np.int64)
    part = known.part[found]
    places, counts = np.unique(part), np.bincount(part, known.count[found]).astype(np.int64)
    first = found[np.searchsorted(part, places)]  # by part and row
    lasts = [None if one == UNENDED else one for one in known.lasts[first].tolist()]
    told = {
        "row": known.row[first].tolist(),
        "start": (known.start[first] - (trace.meta.start_ns or 0)).tolist(),
        "lasts": lasts,
        "name": [cut(names[code]) for code in known.name[first].tolist()],
        "count": counts[places].tolist(),
    }
    return {"events": int(counts.sum()), "first": told}


def _by_event(trace: TraceReader, wanted: str, parts: int) -> dict[str, Any]:
    """A segment at a time."""
    begin, end = trace.meta.start_ns or 0, trace.meta.end_ns or 0
    long = part_ns(begin, end, parts)
    named = rules.Named(lambda name: wanted in name.lower())
    counts = np.zeros(parts, dtype=np.int64)
    first: dict[int, tuple[int, int, int | None, str]] = {}
    for table in trace.iterate(("name", "end"), args=False):
        rows = np.flatnonzero(named.of(table))
        if not len(rows):
            continue
        start = table.columns["start"][rows]
        part = np.clip((start - begin) // long, 0, parts - 1)
        counts += np.bincount(part, minlength=parts)
        for one in np.unique(part, return_index=True)[1].tolist():
            if int(part[one]) not in first:
                row = int(rows[one])
                ended, name = int(table.column("end")[row]), rules.names_of(table)[int(table.column("name")[row])]
                lasts = None if ended == NO_END else max(ended - int(start[one]), 0)
                first[int(part[one])] = (row + table.first_row, int(start[one]) - begin, lasts, cut(name))
    found = [(*told, int(counts[one])) for one, told in sorted(first.items())]
    columns = zip(*found, strict=True) if found else [()] * 5
    keys = ("row", "start", "lasts", "name", "count")
    return {"events": int(counts.sum()), "first": dict(zip(keys, map(list, columns), strict=True))}
