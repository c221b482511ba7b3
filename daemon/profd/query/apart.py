"""Samples that a table of names leaves out: they would be added to what was recorded, or are of threads that slept.

`--raw` has them.
"""

from __future__ import annotations

import numpy as np

from profd.events import EventTable, Kind
from profd.events.table import Array
from profd.query import rules
from profd.query.accounting import beside_of
from profd.segments.meta import TraceMeta


def apart(table: EventTable, meta: TraceMeta, has_operators: bool | None = None) -> Array:
    """Which rows: samples that nobody asked for in a trace with operators, and those of threads that never ran.

    `has_operators`: whether the trace has any, where the table is a part of it.
    """
    kinds = table.column("kind")
    samples: Array = rules.is_kind(kinds, Kind.SAMPLE)
    if not samples.any():
        return samples
    asked = meta.options.get("sample_hz") or meta.known_traits.samples
    if not asked and (bool(rules.is_kind(kinds, Kind.CPU_OP).any()) if has_operators is None else has_operators):
        return samples
    idle = _idle(meta)
    thread = table.column("thread")
    there = samples & (thread >= 0) & (thread < len(idle))
    slept = there & idle[np.where(there, thread, 0)] if len(idle) else np.zeros(len(samples), dtype=bool)
    return np.zeros(len(samples), dtype=bool) if bool((slept == samples).all()) else slept


def _idle(meta: TraceMeta) -> Array:
    """For each track, whether the kernel says that its thread did not run; of one that ended it says nothing."""
    known = meta.tracks.threads
    ids = np.array([_number(track.get("id")) for track in known], dtype=np.int64)
    idle = np.zeros(len(known), dtype=bool)
    for first, last in meta.run_times.idle_ids:
        idle |= (ids >= first) & (ids <= last)
    return idle[beside_of(meta.tracks)] if len(idle) else idle


def _number(known: object) -> int:
    return known if isinstance(known, int) and -1 << 62 < known < 1 << 62 else -1
