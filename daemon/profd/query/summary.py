"""The summary of a trace: the answer at the end of `profctl start` and `profctl show` (docs/json.md)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

import msgspec
import numpy as np

from profd.derive.memory import MEMORY_COLUMNS, MemoryUse
from profd.derive.steps import STEP_COLUMNS, Steps
from profd.errors import Exhausted
from profd.events.table import Array
from profd.query import resident
from profd.query.accounting import COVER_COLUMNS, Account, Coverage, account, window_of
from profd.query.averages import Average, Grouping, averages_of_trace
from profd.query.devices import BUSY_COLUMNS, BusyClock, EventCounter, EventCounts, gpu_shortfall
from profd.query.following import following
from profd.query.memory import alive_in_all
from profd.query.outside import OUTSIDE_COLUMNS, Outside
from profd.query.reads import HostReads
from profd.query.steps import StepMarks, outliers, why_none
from profd.segments.meta import TraceMeta
from profd.segments.reader import TraceReader
from profd.segments.rollups import kept_value

TOP_ROWS: Final = 5
ALIVE_STACKS: Final = 3  # of those that hold most memory at the end
OUTLIERS_NAMED: Final = 32  # of steps that took much longer than others, the longest
_SCAN_COLUMNS: Final = tuple(dict.fromkeys((*BUSY_COLUMNS, *STEP_COLUMNS, *MEMORY_COLUMNS, *COVER_COLUMNS)))


def summarise(reader: TraceReader) -> dict[str, Any]:
    """The summary as JSON values, as it was kept, or from the events; parts that are not known are None, never zero."""
    return kept_value(reader.rollups, "summary", _is_answer, lambda: _worked_out(reader))


def _is_answer(kept: Any) -> bool:
    """As far as others count on it."""
    return isinstance(kept, dict) and isinstance(kept.get("accounting"), dict) and "next" in kept


def _worked_out(reader: TraceReader) -> dict[str, Any]:
    meta = reader.meta
    recorded = None if meta.start_ns is None or meta.end_ns is None else meta.end_ns - meta.start_ns
    clock, counts, steps, memory, coverage, outside, reads = _scan(reader)
    accounted = account(coverage, meta)
    devices = clock.busy(recorded or 0)
    shortfall = gpu_shortfall(counts)
    alive = _alive(reader, steps) if memory.devices else None
    return {
        "window": _window(meta, recorded),
        "accounting": asdict(accounted),
        "outside_operators": _outside(outside, accounted, meta),
        "host": meta.host or None,
        "pid": meta.pid,
        "rank": meta.rank,
        "job": meta.job or None,
        "source": meta.source or None,
        "gpus": sorted({device.device for device in devices if device.device is not None}),
        "clock_error_ns": meta.clock_error_ns,
        "events": meta.events,
        "gpu_events": meta.gpu_events,
        "steps": _steps(steps, meta),
        "devices": [asdict(device) for device in devices],
        "memory": [asdict(use) for use in memory.result()],
        "alive": alive,
        "resident": resident.as_json(meta.resident, steps),
        "host_reads": reads.as_json(len(steps)),
        "top": [row.as_json() for row in _top(reader)],
        "lost": msgspec.to_builtins(meta.lost),
        "not_honoured": meta.not_honoured,
        "cost": msgspec.to_builtins(meta.cost),
        "waterfall": msgspec.to_builtins(meta.waterfall),
        "warnings": [*meta.warnings, *(text for text in (meta.truncated, shortfall) if text)],
        "anomalies": meta.anomalies,
        "versions": meta.versions,
        "gpu": meta.gpu,
        "next": following(
            meta.trace or reader.directory.name,
            meta,
            steps,
            alive,
            _mostly_sampled(accounted),
            grows=resident.steady(meta.resident) is not None
            and not resident.may_still_start(meta.resident, int(steps.durations[1:].sum()))
            and any(thread.operators_ns for thread in accounted.threads),
        ),
    }


def _window(meta: TraceMeta, recorded: int | None) -> dict[str, Any]:
    return {
        "asked_ns": meta.options.get("duration_ns") or None,
        "asked_iterations": meta.options.get("iterations") or None,
        "start_ns": meta.start_ns,
        "end_ns": meta.end_ns,
        "recorded_ns": recorded,
        "window_ns": None if (window := window_of(meta)) is None else window[1] - window[0],
    }


def _outside(outside: Outside, accounted: Account, meta: TraceMeta) -> list[dict[str, Any]] | None:
    """Of the leading thread, where it has operators: elsewhere `top` says it."""
    if accounted.leading is None or not (leading := accounted.threads[accounted.leading]).operators_ns:
        return None
    return next(
        (outside.of(number) for number, track in enumerate(meta.tracks.threads) if track.get("id") == leading.id), None
    )


def _mostly_sampled(accounted: Account) -> bool:
    """The leading thread has operators, and samples beside them saw more of it."""
    if accounted.leading is None:
        return False
    leading = accounted.threads[accounted.leading]
    return leading.sampled_ns > leading.recorded_ns > 0


def _scan(reader: TraceReader) -> tuple[BusyClock, EventCounts, Steps, MemoryUse, Coverage, Outside, HostReads]:
    """One pass over the trace, a segment at a time; of it only the rows that may mark steps are kept."""
    clock, counter, marks, memory = BusyClock(), EventCounter(), StepMarks(), MemoryUse()
    coverage, outside, reads = Coverage(reader.meta), Outside(reader.meta), HostReads()
    columns = dict.fromkeys((*_SCAN_COLUMNS, *(OUTSIDE_COLUMNS if outside.wanted else ())))
    for table in reader.iterate(tuple(columns), args=False):
        clock.add(table)
        memory.add(table)
        counter.add(table)
        marks.add(table)
        coverage.add(table)
        outside.add(table)
        reads.add(table)
    return clock, counter.counts, marks.steps(reader), memory, coverage, outside, reads


def _steps(steps: Steps, meta: TraceMeta) -> dict[str, Any]:
    if not len(steps):
        nothing = dict.fromkeys(("p50_ns", "p95_ns", "max_ns", "from", "outliers"))
        return {"n": 0, **nothing, "message": why_none(meta)}
    lasting = np.sort(steps.durations)
    return {
        "n": len(steps),
        "p50_ns": _percentile(lasting, 0.50),
        "p95_ns": _percentile(lasting, 0.95),
        "max_ns": int(lasting[-1]),
        "from": steps.how,
        "message": None,
        "outliers": _outliers(steps),
    }


def _outliers(steps: Steps) -> dict[str, Any] | None:
    found = outliers(steps.durations)
    if found is None:
        return None
    longest = np.argsort(-steps.durations, kind="stable")[: min(found.n, OUTLIERS_NAMED)]
    numbers = steps.numbers
    return {**asdict(found), "numbers": [numbers[at] for at in np.sort(longest).tolist()]}


def _alive(reader: TraceReader, steps: Steps) -> dict[str, Any] | None:
    try:
        return alive_in_all(reader, steps, ALIVE_STACKS)
    except Exhausted:
        return None  # `profctl memory --window` looks at parts


def _percentile(ordered: Array, share: float) -> int:
    """The smallest value that at least this share of the values does not exceed."""
    return int(ordered[max(int(np.ceil(share * len(ordered))) - 1, 0)])


def _top(reader: TraceReader) -> list[Average]:
    try:
        rows = averages_of_trace(reader, raw=False, grouping=Grouping())
    except Exhausted:
        # Too large for torch's view, which needs all of it at once; as recorded it goes by segments.
        rows = averages_of_trace(reader, raw=True, grouping=Grouping())
    # The shadow of an annotation on a device spans its kernels: it is not work of its own.
    work = [row for row in rows if not row.shadow]
    return sorted(work, key=lambda row: -max(row.self_cpu_time_total_ns, row.self_device_time_total_ns))[:TOP_ROWS]
