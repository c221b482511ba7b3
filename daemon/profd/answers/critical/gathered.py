"""What the critical path of one trace is found from, read in two passes, a segment at a time. Times in ns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.answers.calls import CALLS, joined, waits_for_device
from profd.answers.measured import Measured, measure
from profd.answers.work import WORK_COLUMNS, Work, WorkGathered, places_of
from profd.derive.steps import OPTIMIZER_STEP, PROFILER_STEP, STEP_COLUMNS
from profd.events import EventTable
from profd.events.table import Array
from profd.query import rules
from profd.query.steps import StepMarks, why_none
from profd.query.view import durations
from profd.query.whole import check_size
from profd.segments.reader import TraceReader

_WAITS_FOR_ALL: Final = re.compile(r"(cuda|hip)DeviceSynchronize|cuCtxSynchronize").match
_BACKWARD: Final = "autograd::engine::evaluate_function"
_COLUMNS: Final = tuple(dict.fromkeys((*WORK_COLUMNS, *rules.ASYNC_COLUMNS, "parent")))


@dataclass(frozen=True, slots=True)
class Host:
    """Calls of the threads that a step runs on, in start order; each lasts longer than nothing."""

    row: Array  # of the trace
    start: Array
    end: Array
    name: Array  # codes; NO_CODE: the step itself, whose name says nothing
    thread: Array  # track numbers
    parent: Array  # row of the trace
    waits: Array  # bool: the call waits for a device, by its name
    waits_for_all: Array  # bool: for all of its streams

    @property
    def parent_place(self) -> Array:
        """Places of the calls around each; NO_PLACE: none."""
        return places_of(self.row, self.parent)


@dataclass(frozen=True, slots=True)
class Gathered:
    """All of it. Both are empty where `measured.lacking` says why there is nothing to look at."""

    measured: Measured
    host: Host
    work: Work


def gather(reader: TraceReader) -> Gathered:
    """Raises Exhausted for a trace of too many events."""
    check_size(len(reader), "export a --window of the trace, import that, and ask it")
    marks, backward = StepMarks(), rules.Named(lambda name: name.startswith(_BACKWARD))
    threads: set[int] = set()
    for table in reader.iterate(STEP_COLUMNS, args=False):
        marks.add(table)
        threads.update(np.unique(table.column("thread")[backward.of(table)]).tolist())
    measured = measure(marks.steps(reader), reader.meta, why_none(reader.meta))
    host, work = _HostGathered({measured.thread, *threads}), WorkGathered(reader.meta.gpu_events)
    if not measured.lacking:
        for table in reader.iterate(_COLUMNS, args=False):
            host.add(table)
            work.add(table)
    return Gathered(measured, host.host(), work.work(reader))


class _HostGathered:
    def __init__(self, threads: set[int]) -> None:
        self._threads = np.array(sorted(threads))
        self._waits = rules.Named(lambda name: waits_for_device(name) is not None)
        self._waits_for_all = rules.Named(lambda name: _WAITS_FOR_ALL(name) is not None)
        self._steps = rules.Named(lambda name: name.startswith((PROFILER_STEP, OPTIMIZER_STEP)))
        self._parts: list[tuple[Array, ...]] = []

    def add(self, table: EventTable) -> None:
        kinds, lasting = table.column("kind"), durations(table)
        on_stack = rules.is_work(kinds) & ~rules.is_async(table) & rules.is_cpu(table.column("device_type"))
        rows = np.flatnonzero(on_stack & (lasting > 0) & np.isin(table.column("thread"), self._threads))
        start = table.columns["start"][rows]
        name = np.where(self._steps.of(table)[rows], -1, table.column("name")[rows])
        waits = self._waits.of(table)[rows] & rules.is_kind(kinds[rows], *CALLS)
        for_all = self._waits_for_all.of(table)[rows] & waits
        thread, parent = (table.column(column)[rows] for column in ("thread", "parent"))
        self._parts.append((rows + table.first_row, start, start + lasting[rows], name, thread, parent, waits, for_all))

    def host(self) -> Host:
        row, start, end, name, thread, parent, waits, for_all = joined(self._parts, len(Host.__slots__))
        return Host(row, start, end, name, thread, parent, waits.astype(bool), for_all.astype(bool))
