"""How often each name was called, and how long by itself, in some steps and in usual ones: a second pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from profd.answers.measured import Measured
from profd.derive.steps import PROFILER_STEP
from profd.events import NO_CODE, NO_END
from profd.events.table import Array
from profd.query import rules
from profd.segments.reader import TraceReader

NOTHING_RECORDED: Final = "nothing recorded"
_COLUMNS: Final = ("name", "kind", "device_type", "thread", "start", "self_time")


@dataclass(frozen=True, slots=True)
class NamesInSteps:
    """Of the thread of the steps. Rows: chosen steps; columns: names, and last what is in no call. Times in ns."""

    count: Array
    time: Array  # self time
    usual_count: Array  # mean of the usual steps
    usual_time: Array
    beyond: Array  # what each chosen step lasted beyond the mean of the usual ones
    _names: list[str]

    def name(self, column: int) -> str:
        """Of a column."""
        return NOTHING_RECORDED if column == self.time.shape[1] - 1 else self._names[column]


def names_in_steps(
    reader: TraceReader, measured: Measured, chosen: Array, usual: Array, segments: Iterable[int] | None = None
) -> NamesInSteps:
    """Look at these steps of the measured ones, by their places. The reader has read the names of the whole trace.

    `segments`: those that the measured steps are in; None: any. Memory: 16 bytes for each name and chosen step.
    """
    group_of = np.full(measured.steps + 1, -1, dtype=np.int64)  # the last answers for what lies in no step
    group_of[chosen] = np.arange(len(chosen))
    group_of[usual] = len(chosen)
    groups, names = len(chosen) + 1, len(reader.dictionaries["name"])
    step_named = rules.Named(lambda name: name.startswith(PROFILER_STEP))
    count, time = np.zeros((groups, names)), np.zeros((groups, names))
    for table in reader.iterate(_COLUMNS, segments=segments, args=False):
        name, own, start = table.column("name"), table.column("self_time"), table.columns["start"]
        rows = np.flatnonzero((table.column("thread") == measured.thread) & (own != NO_END) & (name != NO_CODE))
        rows = rows[rules.is_cpu(table.column("device_type")[rows]) & rules.is_work(table.column("kind")[rows])]
        rows = rows[~step_named.of(table)[rows]]
        step = np.searchsorted(measured.start, start[rows], side="right") - 1
        group = group_of[np.where((step >= 0) & (start[rows] < measured.end[step]), step, -1)]
        rows, group = rows[group >= 0], group[group >= 0]
        key = group * names + name[rows]
        count += np.bincount(key, minlength=groups * names).reshape(groups, names)
        time += np.bincount(key, weights=own[rows], minlength=groups * names).reshape(groups, names)
    return _compared(reader, measured, (chosen, usual), count, time)


def _compared(
    reader: TraceReader, measured: Measured, steps: tuple[Array, Array], count: Array, time: Array
) -> NamesInSteps:
    chosen, usual = steps
    lasted, mean = measured.durations[chosen], float(measured.durations[usual].mean())
    count[-1] /= len(usual)
    time[-1] /= len(usual)
    # What the calls do not add up to is a name of its own, called as often in every step.
    whole = np.append(lasted, mean)
    time = np.column_stack([time, np.maximum(whole - time.sum(axis=1), 0)])
    count = np.column_stack([count, np.ones(len(count))])
    names = reader.dictionaries["name"].values
    return NamesInSteps(count[:-1], time[:-1], count[-1], time[-1], np.maximum(lasted - mean, 1), names)
