"""Training steps, from the ranges that mark them. Nothing is guessed where there are none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from profd.events import NO_CODE, NO_END, DeviceType, EventTable, Kind

Array = npt.NDArray[Any]

PROFILER_STEP: Final = "ProfilerStep"
OPTIMIZER_STEP: Final = "Optimizer.step"

# The columns of the table that `find_steps` looks at.
STEP_COLUMNS: Final = ("name", "kind", "device_type", "start", "end", "thread")

_PROFILER_STEP_NAME: Final = re.compile(r"ProfilerStep#\d+\Z")
_STEP_NUMBER: Final = re.compile(r"ProfilerStep#(\d{1,18})\Z")  # larger ones fit no column
_OPTIMIZER_STEP_NAME: Final = re.compile(r"Optimizer\.step#")


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps in start order, those of all threads together."""

    start: Array  # int64 Unix ns
    end: Array  # int64 Unix ns
    name: list[str]
    thread: Array  # int32 track numbers
    how: str  # PROFILER_STEP, OPTIMIZER_STEP, or empty: the trace marks no steps

    def __len__(self) -> int:
        return len(self.start)

    @property
    def durations(self) -> Array:
        """int64 ns."""
        return self.end - self.start

    @property
    def numbers(self) -> list[int]:
        """The numbers that `--step` takes: the n of `ProfilerStep#n`, others from 1 on."""
        found = [_STEP_NUMBER.match(name) for name in self.name]
        return [int(match[1]) if match else place for place, match in enumerate(found, start=1)]


def find_steps(table: EventTable, first_from: int | None = None, last_until: int | None = None) -> Steps:
    """The steps of a trace.

    `ProfilerStep#n` ranges where there are any (torch.profiler's `step()`).
    Otherwise an outermost `Optimizer.step#…` range ends a step on its thread,
    and the next step begins there: n ranges make n - 1 steps, since nothing
    says when the first began, unless `first_from` (Unix ns) does: then n ranges
    make n steps. Gradient accumulation does not show: a step is what lies
    between two updates. Ranges without an end make no step, but for those of
    optimizers where `last_until` (Unix ns) says when the last of them ended.
    """
    end = table.column("end")
    row, word = _named(table, end, _PROFILER_STEP_NAME)
    if len(row):
        return _profiler_steps(table, row, word)
    if last_until is not None:
        end = np.where(end == NO_END, last_until, end)
    row, word = _named(table, end, _OPTIMIZER_STEP_NAME)
    if len(row):
        return _optimizer_steps(table, end, row, word, first_from)
    none = np.empty(0, dtype=np.int64)
    return Steps(none, none, [], none.astype(np.int32), "")


def _named(table: EventTable, end: Array, pattern: re.Pattern[str]) -> tuple[Array, list[str]]:
    """(rows on the host that have an end and such a name, their names)."""
    names = table.dictionaries["name"].values if "name" in table.dictionaries else []
    fits = np.array([pattern.match(name) is not None for name in names] + [False], dtype=np.bool_)
    if not fits.any():
        return np.empty(0, dtype=np.int64), []
    code, device = table.column("name"), table.column("device_type")
    # The same range is there a second time where the device worked for it.
    host = (table.column("kind") != Kind.GPU_USER_ANNOTATION) & (
        (device == DeviceType.CPU) | (device == DeviceType.OTHER)
    )
    rows = np.flatnonzero(fits[code] & (code != NO_CODE) & host & (end != NO_END) & (end >= table.columns["start"]))
    return rows, [names[number] for number in code[rows].tolist()]


def _profiler_steps(table: EventTable, row: Array, word: list[str]) -> Steps:
    thread, start = table.column("thread")[row], table.columns["start"][row]
    # Some versions write a step as an operator and as an annotation.
    seen = set()
    kept = []
    for at, key in enumerate(zip(thread.tolist(), word, start.tolist(), strict=True)):
        if key not in seen:
            seen.add(key)
            kept.append(at)
    kept.sort(key=lambda at: int(start[at]))
    end = table.column("end")[row]
    return Steps(start[kept], end[kept], [word[at] for at in kept], thread[kept], PROFILER_STEP)


def _optimizer_steps(table: EventTable, end: Array, row: Array, word: list[str], first_from: int | None) -> Steps:
    found: list[tuple[int, int, str, int]] = []
    last_end: dict[int, int] = {}  # of the latest outermost range, by thread
    starts, ends = table.columns["start"][row].tolist(), end[row].tolist()
    threads = table.column("thread")[row].tolist()
    # Longer first among those that start together: what they enclose comes after them.
    for at in sorted(range(len(row)), key=lambda at: (starts[at], -ends[at])):
        thread = threads[at]
        # Of several threads only the one that is first can have begun its step there.
        begin = last_end.get(thread) if last_end else first_from
        if begin is not None and ends[at] <= begin:
            continue  # inside the range before it
        if begin is not None:
            found.append((begin, ends[at], word[at], thread))
        last_end[thread] = ends[at]
    found.sort(key=lambda step: step[0])
    return Steps(
        np.array([step[0] for step in found], dtype=np.int64),
        np.array([step[1] for step in found], dtype=np.int64),
        [step[2] for step in found],
        np.array([step[3] for step in found], dtype=np.int32),
        OPTIMIZER_STEP,
    )
