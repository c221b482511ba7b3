"""Figures of the GPUs' samples beside a trace (profd.gpu.tracks)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.events import EventTable, Kind
from profd.events.table import Array
from profd.gpu.tracks import CATEGORY
from profd.query import rules
from profd.query.partition import Partition
from profd.segments.reader import TraceReader

METRICS_MAX: Final = 1024  # tracks; more are made up
_COLUMNS: Final = ("name", "cat", "kind", "process", "value")


@dataclass(frozen=True, slots=True)
class Metric:
    """One track of samples that have one value each."""

    track: str  # `GPU 0`, `GPU 0 MIG 1`, as NVML counts
    name: str  # as the gauge in Prometheus, less `profd_gpu_`
    samples: int
    mean: float
    min: float
    max: float


def metrics_of_trace(reader: TraceReader) -> list[Metric]:
    """Of each track, a segment at a time; in the order of their tracks and of their first samples."""
    found: dict[tuple[int, int], list[Array]] = {}
    for table in reader.iterate(_COLUMNS, args=False):
        rows = _samples(table)
        parts, values = (
            Partition(table.column("process")[rows], table.column("name")[rows]),
            table.column("value")[rows],
        )
        for part in range(len(parts)):
            process, name = parts.values(part)
            if (process, name) in found or len(found) < METRICS_MAX:
                found.setdefault((process, name), []).append(values[parts.of(part)])
    names = reader.dictionaries["name"].values if found else []
    tracks = reader.tracks.processes
    return [
        _metric(str(tracks[process]["id"]), names[name], np.concatenate(parts))
        for (process, name), parts in sorted(found.items())
    ]


def _samples(table: EventTable) -> Array:
    known = table.dictionaries.get("cat")
    if known is None or CATEGORY not in known.values:
        return np.zeros(0, dtype=np.int64)
    counters = rules.is_kind(table.column("kind"), Kind.COUNTER) & (table.column("process") >= 0)
    counters &= (table.column("cat") == known.values.index(CATEGORY)) & (table.column("name") >= 0)
    return np.flatnonzero(counters & np.isfinite(table.column("value")))


def _metric(track: str, name: str, values: Array) -> Metric:
    mean = float(np.ldexp(np.ldexp(values, -64).mean(), 64))  # exact, and the sum of the largest numbers stays finite
    return Metric(track, name, len(values), mean, float(values.min()), float(values.max()))
