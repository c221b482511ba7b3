"""How the devices of one rank spent their time, by the rules of Meta's Holistic Trace Analysis 0.5, in exact ns.

Counted is the work that calls before the last step launched, from its begin to its end. Idle time of a stream is told
apart by when the next launch began: after the work before had ended, the host was late; else gaps below 30 us are what
a device needs between two kernels. Where two on one stream overlap, the gap is below zero, and counts so.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from profd.answers.spans import Spans
from profd.answers.work import Work
from profd.events import NO_END, Kind
from profd.events.table import Array

BETWEEN_KERNELS_NS: Final = 30_000
STREAMS_MAX: Final = 1024


def breakdown(work: Work, talks: Array, last_step: int | None) -> dict[str, Any] | None:
    """`talks`: which work is a collective; `last_step`: when it began, in ns. None: there is no such work."""
    counted = np.ones(len(work), dtype=bool) if last_step is None else _before(work, last_step)
    if not counted.any():
        return None
    work, talks = work.take(np.flatnonzero(counted)), talks[counted]
    kernels = work.kind == Kind.KERNEL
    busy = Spans.union(work.start, work.end)
    computing, talking = (Spans.union(work.start[at], work.end[at]) for at in (kernels & ~talks, kernels & talks))
    window = int(work.end.max() - work.start.min())
    streams = _streams(work)
    return {
        "window_ns": window,
        "compute_ns": computing.total,
        "other_ns": busy.total - computing.total,
        "idle_ns": window - busy.total,
        "communication_ns": talking.total,
        "overlap_ns": talking.common(computing).total,
        "streams": [_stream(work.take(np.flatnonzero(work.stream == one))) for one in streams[:STREAMS_MAX].tolist()],
        "streams_left_out": max(len(streams) - STREAMS_MAX, 0),
    }


def _before(work: Work, last_step: int) -> Array:
    found: Array = (work.launch != NO_END) & (work.launch < last_step)
    return found


def _streams(work: Work) -> Array:
    """By device, then as it numbers them."""
    # Not unique rows of all three: numpy compares these field by field, 1.5 us each.
    streams, first = np.unique(work.stream, return_index=True)
    found: Array = streams[np.lexsort((streams, work.number[first], work.device[first]))]
    return found


def _stream(work: Work) -> dict[str, int | None]:
    """Its idle time between the first work and the last."""
    order = np.argsort(work.start, kind="stable")
    start, end, launch = (each[order] for each in (work.start, work.end, work.launch))
    gap = start[1:] - end[:-1]
    host = (launch[1:] > end[:-1]) & (launch[1:] != NO_END)
    short = ~host & (gap < BETWEEN_KERNELS_NS)
    parts = {"host_wait_ns": host, "kernel_wait_ns": short, "other_ns": ~host & ~short}
    device, number = (int(each[0]) if each[0] != NO_END else None for each in (work.device, work.number))
    return {"device": device, "stream": number, **{name: int(gap[at].sum()) for name, at in parts.items()}}
