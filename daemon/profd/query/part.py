"""A part of a trace: a window, training steps, threads; and the events that it leaves, cut to it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from profd.derive.steps import STEP_COLUMNS, Steps
from profd.errors import BadInput
from profd.events import NO_END, NO_ROW, EventTable, Flows
from profd.events.table import Array
from profd.model.run_times import of_profd
from profd.query import rules
from profd.query.own import own_tracks
from profd.query.steps import StepMarks, why_none
from profd.query.whole import check_size, whole
from profd.segments.join import join
from profd.segments.reader import TraceReader, Window

FAR_FUTURE_NS: Final = (1 << 63) - 1
_SHOWN_MAX: Final = 8  # threads that a refusal names
_ROWS: Final = ("parent", "linked")  # columns that hold rows


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a trace that a question looks at. None: no limit."""

    window: Window | None = None  # [from, to) in Unix ns
    threads: frozenset[int] | None = None  # tracks; what they launched on a device belongs to them
    own: frozenset[int] = frozenset()  # tracks of profd's own threads, left out of all of it (`of_job`)

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the job is left out."""
        return self.window is None and self.threads is None

    def lasts_ns(self, reader: TraceReader) -> int:
        """How much of the trace it is: a window that reaches beyond the last event ends there."""
        if reader.meta.start_ns is None or reader.meta.end_ns is None:
            return 0
        low, high = self.window or (reader.meta.start_ns, reader.meta.end_ns)
        return max(min(high, reader.meta.end_ns) - max(low, reader.meta.start_ns), 0)


def part_of(
    reader: TraceReader,
    *,
    from_ns: int | None = None,
    to_ns: int | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
    thread: str = "",
    steps: Callable[[TraceReader], Steps] | None = None,
) -> Part:
    """The part that arguments of a question name. BadInput says what there is where it is not in the trace.

    `steps`: what knows all steps of a trace; None: `all_steps`.
    """
    window = window_of(reader, from_ns, to_ns, first_step, last_step, steps)
    lasts = (reader.meta.end_ns or 0) - (reader.meta.start_ns or 0)
    if first_step is None and from_ns is not None and from_ns > lasts:
        raise BadInput(
            f"the window begins {from_ns / 1e9:g} s after the first event, and the trace lasts {lasts / 1e9:g} s: "
            "name a window within that"
        )
    return Part(window, _threads(reader, thread) if thread else None)


def of_job(reader: TraceReader, part: Part) -> Part:
    """The same without profd's own threads, unless it names threads."""
    return part if part.threads is not None else replace(part, own=own_tracks(reader.meta))


def part_of_member(reader: TraceReader, edges: Window, **part: Any) -> Part:
    """The part of one trace of a capture: as `part_of`, but windows are counted from the first event of all traces.

    `edges`: of all traces, in Unix ns.
    """
    from_ns, to_ns = part.pop("from_ns", None), part.pop("to_ns", None)
    if part.get("first_step") is not None or (from_ns is None and to_ns is None):
        return part_of(reader, from_ns=from_ns, to_ns=to_ns, **part)
    first, last = edges
    if (from_ns or 0) > last - first:
        raise BadInput(
            f"the window begins {(from_ns or 0) / 1e9:g} s after the first event, and the capture lasts "
            f"{(last - first) / 1e9:g} s: name a window within that"
        )
    return Part(_counted_from(first, from_ns, to_ns), part_of(reader, **part).threads)


def window_of(
    reader: TraceReader,
    from_ns: int | None,
    to_ns: int | None,
    first_step: int | None,
    last_step: int | None,
    steps: Callable[[TraceReader], Steps] | None = None,
) -> Window | None:
    """A window counted from the first event, or that of training steps, as Unix ns; None: all.

    BadInput for one that is empty, for both at once, and for steps that there are not.
    """
    if first_step is None:
        return _relative(reader, from_ns, to_ns)
    if from_ns is not None or to_ns is not None:
        raise BadInput("--step and --window both say which part: give one of them")
    return _steps(reader, (steps or all_steps)(reader), first_step, first_step if last_step is None else last_step)


def _relative(reader: TraceReader, from_ns: int | None, to_ns: int | None) -> Window | None:
    return None if from_ns is None and to_ns is None else _counted_from(reader.meta.start_ns or 0, from_ns, to_ns)


def _counted_from(first: int, from_ns: int | None, to_ns: int | None) -> Window:
    low, high = from_ns or 0, to_ns
    if high is not None and high <= low:
        raise BadInput(f"the window {low}..{high} ns is empty; its end must be after its start")
    return _sum(first, low), FAR_FUTURE_NS if high is None else _sum(first, high)


def _sum(first: int, offset: int) -> int:
    return max(min(first + offset, FAR_FUTURE_NS), NO_END + 1)


def all_steps(reader: TraceReader) -> Steps:
    """The steps of a trace. All of it is read."""
    marks = StepMarks()
    for table in reader.iterate(STEP_COLUMNS, args=False):
        marks.add(table)
    return marks.steps(reader)


def _steps(reader: TraceReader, steps: Steps, first: int, last: int) -> Window:
    """From the start of a step to the end of another. Steps are numbered by `ProfilerStep#n`, others from 1 on."""
    if not len(steps):
        raise BadInput(
            f"--step: this trace has no steps ({why_none(reader.meta)}); --window looks at a part of any trace"
        )
    number = np.array(steps.numbers)
    chosen = np.flatnonzero((number >= first) & (number <= last))
    if not len(chosen):
        asked = str(first) if first == last else f"{first}..{last}"
        raise BadInput(f"the trace has no step {asked}; its steps are {number.min()}..{number.max()}")
    return int(steps.start[chosen].min()), int(steps.end[chosen].max())


def _threads(reader: TraceReader, thread: str) -> frozenset[int]:
    """Tracks of this name or id; one of profd's names: also what the kernel alone calls so."""
    tracks = reader.tracks.threads
    found = {number for number, track in enumerate(tracks) if thread in (str(track.get("name")), str(track["id"]))}
    if of_profd(thread):
        found |= own_tracks(reader.meta)
    if not found:
        known = [f"{track['name']} ({track['id']})" if track.get("name") else str(track["id"]) for track in tracks]
        more = f" and {len(known) - _SHOWN_MAX} more" if len(known) > _SHOWN_MAX else ""
        there = ", ".join(name[:100] for name in known[:_SHOWN_MAX]) or "none"
        raise BadInput(f"the trace has no thread {thread[:100]!r}; its threads are: {there}{more}")
    return frozenset(found)


def rows_on(reader: TraceReader, threads: frozenset[int]) -> Array:
    """A flag for each row of the trace: it ran on one of these tracks, or was launched there. 1 byte a row."""
    tracks = np.zeros(len(reader.tracks.threads) + 1, dtype=bool)  # the last answers for rows without a thread
    tracks[list(threads)] = True
    on = np.zeros(len(reader), dtype=bool)
    launched: list[tuple[Array, Array]] = []
    for table in reader.iterate(("thread", "device_type", "linked"), args=False):
        on[table.first_row : table.first_row + len(table)] = tracks[table.column("thread")]
        link = table.column("linked")
        work = np.flatnonzero((link >= 0) & (link < len(on)) & ~rules.is_cpu(table.column("device_type")))
        launched.append((work + table.first_row, link[work]))
    for rows, link in launched:
        on[rows] |= on[link]
    return on


def chosen_rows(reader: TraceReader, part: Part) -> Array | None:
    """A flag for each row of the trace, whatever its window: it is on the threads of the part. None: all are."""
    if part.threads is not None:
        return rows_on(reader, part.threads)
    return ~rows_on(reader, part.own) if part.own else None


def read_part(reader: TraceReader, part: Part, columns: Collection[str]) -> EventTable:
    """The events of a part as a trace of their own: rows from 0 on, times cut to the window, one table.

    Columns that hold rows count in this table; rows that are not in it are NO_ROW. `columns["row"]` holds the rows of
    the trace. Exhausted where the part would not fit into a worker.
    """
    on = chosen_rows(reader, part)
    columns = {*columns, "end"}
    if part.window is None:
        found = _those_on(whole(reader, columns), on)
        if on is None:
            return found
    else:
        found = _in_window(reader, part.window, on, columns)
    for name in _ROWS:
        if name in found.columns:
            found.columns[name] = places_of(found.columns["row"], found.columns[name])
    return found


def _in_window(reader: TraceReader, window: Window, on: Array | None, columns: Collection[str]) -> EventTable:
    tables, count = [], 0
    for table in reader.iterate(columns, window=window, args=False):
        kept = _those_on(table, on)
        count += len(kept)
        check_size(count, "narrow it further with --window")
        if len(kept):
            tables.append(kept)
    found = join(tables, reader.dictionaries)
    low, high = window
    end = found.column("end")
    # What had begun before begins with the window: rows stay in order, the outer ones first.
    start = np.maximum(found.columns["start"], low)
    cut = {"start": start, "end": np.where(end == NO_END, NO_END, np.minimum(end, high))}
    return EventTable({"row": numbers_of(found), **found.columns, **cut}, found.dictionaries)


def numbers_of(table: EventTable) -> Array:
    """The trace-wide row numbers of a table, of a window or not."""
    given = table.columns.get("row")
    return np.arange(len(table), dtype=np.int64) + table.first_row if given is None else given


def numbers_at(table: EventTable, places: Array) -> Array:
    """The same of some rows, without all others."""
    given = table.columns.get("row")
    return places + np.int64(table.first_row) if given is None else given[places]


def _those_on(table: EventTable, on: Array | None) -> EventTable:
    columns = {**table.columns, "row": numbers_of(table)}
    if on is not None:
        kept = np.flatnonzero(on[columns["row"]])
        columns = {name: values[kept] for name, values in columns.items()}
    return EventTable(columns, table.dictionaries)


def places_of(rows: Array, wanted: Array) -> Array:
    """Where each of the wanted rows stands among `rows`, which ascend; NO_ROW: nowhere."""
    if not len(rows):
        return np.full(len(wanted), NO_ROW, dtype=np.int64)
    place = np.minimum(np.searchsorted(rows, wanted), len(rows) - 1)
    found: Array = np.where(rows[place] == wanted, place, NO_ROW)
    return found


def flows_within(flows: Flows, table: EventTable) -> Flows:
    """Flow records bound to rows of a part, as `read_part` counts them."""
    row = places_of(table.columns["row"], flows.row)
    return Flows(**{name: getattr(flows, name) for name in Flows.__dataclass_fields__ if name != "row"}, row=row)
