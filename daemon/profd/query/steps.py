"""The steps of a trace one by one: `profctl steps`, and what the summary says of them (docs/json.md)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from profd.derive.steps import OPTIMIZER_STEP, PROFILER_STEP, STEP_COLUMNS, Steps, find_steps
from profd.events import NO_ROW, EventTable, Kind
from profd.events.table import Array
from profd.query import rules
from profd.query.annotated_steps import annotated_steps, ops_of_steps
from profd.query.captured import Member, opened
from profd.query.devices import DEVICE_WORK, is_launch_name
from profd.query.space import is_xspace
from profd.query.view import durations
from profd.segments.join import join
from profd.segments.meta import TraceMeta
from profd.segments.reader import TraceReader
from profd.segments.rollups import kept_value

NO_STEPS: Final = (
    "none found: mark them with profclient.step() (JAX: StepTraceAnnotation), or record two optimizer steps or more"
)
NO_STEPS_IN_SAMPLES: Final = "none found: samples do not mark steps"
NO_STEPS_WITHOUT_OPERATORS: Final = "none found: steps of an optimizer are recorded with operators only"

_STEP_NAMES: Final = (PROFILER_STEP, OPTIMIZER_STEP)
_WORK_COLUMNS: Final = ("name", "kind", "device_type", "start", "end", "linked")
_CALLS: Final = (Kind.RUNTIME, Kind.DRIVER)
_HOST_WORK: Final = (Kind.CPU_OP, *_CALLS)
_LONG_AGO: Final = int(np.iinfo(np.int64).min)


@dataclass(frozen=True, slots=True)
class Step:
    """One step and what ran while it lasted, on all threads and devices. Times in ns."""

    name: str
    start_ns: int  # Unix
    duration_ns: int
    device_busy_ns: int | None  # at least one device worked; None where the trace has no device records
    device_idle_ns: int | None
    launches: int  # runtime and driver calls that start work on a device
    host_share: float | None  # share in operators and runtime calls on any thread; None for a step of no length
    launch_delay_p50_ns: int | None  # from a launch in the step to the begin of what it launched; None without any
    launch_delay_max_ns: int | None


OUTLIER_DEVIATIONS: Final = 5  # beyond the median, in median deviations from it
OUTLIER_SHARE: Final = 0.05  # and at least this share of the median: steps that differ by nothing have no outliers
OUTLIER_STEPS_MIN: Final = 5  # of fewer nobody knows what is usual


@dataclass(frozen=True, slots=True)
class Outliers:
    """Which steps took much longer than the others. Times in ns."""

    n: int
    above_ns: int  # what lasts longer is one: the median and the larger of 5 median deviations and 5 %
    median_ns: int
    deviation_ns: int  # median of the distances from the median


def outliers(durations: Array) -> Outliers | None:
    """Of steps that last so long; None for fewer than OUTLIER_STEPS_MIN."""
    if len(durations) < OUTLIER_STEPS_MIN:
        return None
    median = float(np.median(durations))
    deviation = float(np.median(np.abs(durations - median)))
    above = int(median + max(OUTLIER_DEVIATIONS * deviation, OUTLIER_SHARE * median))
    return Outliers(int((durations > above).sum()), above, int(median), int(deviation))


class StepMarks:
    """Gathers the rows that may mark steps, fed with tables that have STEP_COLUMNS."""

    def __init__(self) -> None:
        self._named = rules.Named(lambda name: name.startswith(_STEP_NAMES))
        self._found: list[EventTable] = []

    def add(self, table: EventTable) -> None:
        """Take in the next stretch of the trace."""
        rows = np.flatnonzero(self._named.of(table))
        columns = {name: table.column(name)[rows] for name in STEP_COLUMNS}
        self._found.append(EventTable(columns, table.dictionaries))

    def steps(self, reader: TraceReader) -> Steps:
        """The steps of all stretches; of an XSpace those that are annotated."""
        found = find_steps(join(self._found, reader.dictionaries), *_edges(reader.meta))
        return annotated_steps(reader) if not len(found) and is_xspace(reader) else found


def _edges(meta: TraceMeta) -> tuple[int | None, int | None]:
    """Where the first step began and the last one ended, where the way of recording says so.

    Kineto begins to record so many steps between two of them. An attached process begins at once, within one, which is
    recorded in part; it ends from within the last update, whose range may then have no end of its own.
    """
    if not meta.options.get("iterations"):
        return None, None
    return (None, meta.end_ns) if meta.known_traits.begins_within_step else (meta.start_ns, None)


def why_none(meta: TraceMeta) -> str:
    """Why a trace has no steps, as a sentence."""
    if not meta.known_traits.steps:
        return NO_STEPS_IN_SAMPLES
    return NO_STEPS_WITHOUT_OPERATORS if any(said.startswith("torch: ") for said in meta.not_honoured) else NO_STEPS


def steps_of_trace(source: TraceReader | Member) -> dict[str, Any]:
    """`profctl steps --json`, as it was kept, or in two passes over the trace, each a segment at a time."""
    return kept_value(source.rollups, "steps", _is_answer, lambda: _worked_out(opened(source)))


def _is_answer(kept: Any) -> bool:
    """As far as others count on it."""
    return (
        isinstance(kept, dict)
        and kept.keys() == {"n", "from", "message", "outliers", "steps"}
        and isinstance(kept["steps"], list)
        and all(
            isinstance(row, dict) and all(type(row.get(name)) is int for name in ("number", "start_ns", "duration_ns"))
            for row in kept["steps"]
        )
    )


def _worked_out(reader: TraceReader) -> dict[str, Any]:
    marks = StepMarks()
    for table in reader.iterate(STEP_COLUMNS, args=False):
        marks.add(table)
    steps = marks.steps(reader)
    if not len(steps):
        return {"n": 0, "from": None, "message": why_none(reader.meta), "outliers": None, "steps": []}
    ops = ops_of_steps(reader, steps)
    measured = zip(steps.numbers, _measured(steps, reader), ops, strict=True)
    slow = outliers(steps.durations)
    rows = [
        {
            "number": number,
            **asdict(step),
            "ops": led_to,
            "outlier": slow is not None and step.duration_ns > slow.above_ns,
        }
        for number, step, led_to in measured
    ]
    found = None if slow is None else asdict(slow)
    return {"n": len(rows), "from": steps.how, "message": None, "outliers": found, "steps": rows}


def _measured(steps: Steps, reader: TraceReader) -> Iterable[Step]:
    device, host, launches, delays = _BusyInSteps(steps), _BusyInSteps(steps), _Count(steps), _LaunchDelays(steps)
    launching = rules.Named(is_launch_name)
    on_device = 0
    for table in reader.iterate(_WORK_COLUMNS, args=False):
        kinds, cpu = table.column("kind"), rules.is_cpu(table.column("device_type"))
        start, lasting = table.columns["start"], durations(table)
        work = np.flatnonzero(rules.is_kind(kinds, *DEVICE_WORK) & ~cpu)
        on_device += len(work)
        device.add(start[work], lasting[work])
        calls = np.flatnonzero(rules.is_kind(kinds, *_HOST_WORK) & cpu)
        host.add(start[calls], lasting[calls])
        launched_by = np.flatnonzero(rules.is_kind(kinds, *_CALLS))
        launches.add(start[launched_by[launching.of(table)[launched_by]]])
        delays.add(table, launched_by, work)
    columns = (steps.start, steps.durations, device.within, launches.within, host.within)
    waits = delays.within()
    for name, values in zip(steps.name, zip(*(column.tolist() for column in columns), waits, strict=True), strict=True):
        begin, lasts, busy, launched, host_busy, delay = values
        known = on_device > 0
        yield Step(
            name,
            begin,
            lasts,
            busy if known else None,
            lasts - busy if known else None,
            launched,
            host_busy / lasts if lasts else None,
            *delay,
        )


class _BusyInSteps:
    """How long of each step at least one of the intervals fed so far covers; they come in start order."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._until = _LONG_AGO
        self.within = np.zeros(len(steps), dtype=np.int64)  # ns

    def add(self, start: Array, lasting: Array) -> None:
        """Take in more intervals, none of which starts before those already fed."""
        if not len(start):
            return
        reached = np.maximum.accumulate(np.maximum(start + lasting, self._until))
        # Cut to what the intervals before them leave over, they follow one another.
        begin = np.maximum(start, np.concatenate([[self._until], reached[:-1]]))
        self._until = int(reached[-1])
        before = np.concatenate([[0], np.cumsum(reached - begin)])

        def covered(time: Array) -> Array:
            begun = np.searchsorted(begin, time, side="right")
            last = np.maximum(begun - 1, 0)
            beyond = np.where(begun > 0, np.maximum(reached[last] - time, 0), 0)
            ns: Array = before[begun] - beyond
            return ns

        self.within += covered(self._steps.end) - covered(self._steps.start)


class _Count:
    """How many points in time, fed in order, lie in each step."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.within = np.zeros(len(steps), dtype=np.int64)

    def add(self, time: Array) -> None:
        """Take in more of them."""
        self.within += np.searchsorted(time, self._steps.end) - np.searchsorted(time, self._steps.start)


class _LaunchDelays:
    """How long what was launched in each step waited for its device. 32 bytes for each launch that did something."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._calls: list[tuple[Array, Array]] = []  # row, start
        self._work: list[tuple[Array, Array]] = []  # row of its call, start

    def add(self, table: EventTable, calls: Array, work: Array) -> None:
        """Take in the next stretch: its runtime and driver calls, and its device work."""
        start, linked = table.columns["start"], table.column("linked")[work]
        self._calls.append((calls + table.first_row, start[calls]))
        known = linked != NO_ROW
        self._work.append((linked[known], start[work[known]]))

    def within(self) -> list[tuple[int | None, int | None]]:
        """(median, largest) of each step in ns; clocks that disagree make no delay negative."""
        row, begun = (np.concatenate(parts) for parts in zip(*self._calls, strict=True))
        call, start = (np.concatenate(parts) for parts in zip(*self._work, strict=True))
        if not len(row) or not len(call):
            return [(None, None)] * len(self._steps)
        place = np.minimum(np.searchsorted(row, call), len(row) - 1)
        met = row[place] == call
        launched, start = begun[place[met]], start[met]
        order = np.argsort(launched, kind="stable")
        launched, delay = launched[order], np.maximum(start[order] - launched[order], 0)
        low, high = (np.searchsorted(launched, edge) for edge in (self._steps.start, self._steps.end))
        return [_middle_and_most(delay[first:last]) for first, last in zip(low.tolist(), high.tolist(), strict=True)]


def _middle_and_most(delays: Array) -> tuple[int | None, int | None]:
    if not len(delays):
        return None, None
    # The smallest that at least half of them do not exceed, as everywhere in summaries.
    middle = np.partition(delays, (len(delays) - 1) // 2)[(len(delays) - 1) // 2]
    return int(middle), int(delays.max())
