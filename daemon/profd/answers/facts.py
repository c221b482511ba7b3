"""What detectors look at: of one trace, read once, a segment at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from profd.answers.calls import Call, Calls, CallsGathered, joined
from profd.answers.kept_steps import kept_steps
from profd.answers.measured import Measured, measure
from profd.answers.spans import Spans
from profd.answers.work import WORK_COLUMNS, Work, WorkGathered
from profd.derive.memory import MEMORY_NAME
from profd.derive.steps import STEP_COLUMNS
from profd.errors import Exhausted
from profd.events import NO_END, EventTable, Kind
from profd.events.table import Array
from profd.limits import DEVICE_WORK_MAX
from profd.model.run_times import ThreadTimes, of_profd
from profd.query import rules
from profd.query.accounting import COVER_COLUMNS, kernel_name, window_of
from profd.query.outside import OUTSIDE_COLUMNS, Outside
from profd.query.own import own_tracks
from profd.query.steps import StepMarks, why_none
from profd.query.whole import check_size
from profd.segments.reader import TraceReader, Window

DEVICES_MAX: Final = 64  # whose memory is looked at
NAME_CHARACTERS: Final = 40  # of a thread in a sentence: the program chooses it
_COLUMNS: Final = tuple(dict.fromkeys((*STEP_COLUMNS, *WORK_COLUMNS, "parent", "bytes")))
_INSTEAD: Final = "ask about a step or a window (--step, --window)"


@dataclass(frozen=True, slots=True)
class Idle:
    """Stretches in which no device worked and the host had not launched what came next, in order."""

    start: Array  # the devices' last work ended
    until: Array  # the launch of the next began

    @property
    def spans(self) -> Spans:
        """All of them."""
        return Spans.union(self.start, self.until)


@dataclass(frozen=True, slots=True)
class Allocations:
    """What was allocated and freed on one device, in order of time."""

    device_type: int
    device: int  # NO_END: not numbered
    time: Array
    bytes: Array  # negative: freed


class Facts:
    """Of one trace of any size, or of the segments around a window, within which is what is measured then.

    Exhausted where what is gathered, some 170 bytes a row, does not fit into a worker.
    """

    def __init__(self, reader: TraceReader, window: Window | None = None) -> None:
        marks, calls = StepMarks(), CallsGathered(own_tracks(reader.meta))
        work = WorkGathered(None if window else reader.meta.gpu_events)
        memory, samples = _MemoryGathered(), _SamplesSeen()
        self.reader, self.window = reader, window
        self.segments = None if window is None else reader.segments_around(window)
        for table in self.tables(_COLUMNS):
            for gathering in (calls, work, memory, samples) if window else (marks, calls, work, memory, samples):
                gathering.add(table)
            _check_work(work.rows)
            check_size(calls.rows + memory.rows, _INSTEAD)
        steps = kept_steps(reader, marks if window is None else None)
        self.measured: Measured = measure(steps, reader.meta, why_none(reader.meta), window)
        self.work: Work = work.work(reader)
        self.memory: list[Allocations] = memory.allocations()
        self.has_samples = samples.any
        self._calls = {call: calls.calls(call) for call in Call}

    def tables(self, columns: Collection[str]) -> Iterator[EventTable]:
        """These columns of all that is looked at, a segment at a time."""
        return self.reader.iterate(columns, segments=self.segments, args=False)

    def operators(self, named: rules.Named, columns: Collection[str]) -> Iterator[tuple[EventTable, Array]]:
        """Operators of these names on the thread of the steps: their places in tables of these columns, in order."""
        for table in self.tables((*columns, "name", "kind", "thread")):
            rows = named.of(table) & (table.column("kind") == Kind.CPU_OP)
            yield table, np.flatnonzero(rows & (table.column("thread") == self.measured.thread))

    def calls(self, call: Call) -> Calls:
        """The calls that are in the measured part, at least in part."""
        found, spans = self._calls[call], self.measured.spans
        return found.take(np.flatnonzero(spans.within(found.start, found.end) > 0))

    def calls_anywhere(self, call: Call) -> Calls:
        """The same before, between and behind the measured steps, too."""
        return self._calls[call]

    def on_step_thread(self, call: Call) -> Calls:
        """Of these, the ones on the thread of the steps; on all, where there are no steps."""
        found, thread = self.calls(call), self.measured.thread
        return found if thread < 0 else found.take(np.flatnonzero(found.thread == thread))

    @cached_property
    def busy(self) -> Spans:
        """When at least one device worked."""
        return Spans.union(self.work.start, self.work.end)

    def measured_part(self, spans: Spans) -> Spans:
        """What of them lies in the measured part."""
        return spans.common(self.measured.spans)

    def exposed(self, spans: Spans) -> Spans:
        """What of the host's time in the measured part no device's work hides; without devices, all of it."""
        mine = self.measured_part(spans)
        return mine.without(self.busy) if len(self.work) else mine

    @cached_property
    def late(self) -> Idle:
        """When devices stood still for the host."""
        gap_start, gap_end = self.busy.end[:-1], self.busy.start[1:]
        # The first work behind a gap is what the devices waited for.
        launch = self.work.launch[np.searchsorted(self.work.start, gap_end)]
        until = np.minimum(launch, gap_end)
        at = np.flatnonzero((launch != NO_END) & (until > gap_start))
        return Idle(gap_start[at], until[at])

    @cached_property
    def late_in_part(self) -> Spans:
        """The same, in the measured part."""
        return self.measured_part(self.late.spans)

    @property
    def idle_ns(self) -> int:
        """How long no device worked in the measured part."""
        return self.measured.spans.without(self.busy).total

    @property
    def has_launches(self) -> bool:
        """Whether the trace says who launched device work."""
        return bool((self.work.launch != NO_END).any())

    @property
    def kernel_times(self) -> ThreadTimes | None:
        """What the kernel counted of the thread of the steps; without steps, of the program's busiest one."""
        threads, tracks = self.reader.meta.run_times.threads, self.reader.tracks.threads
        number = self.measured.thread
        if number < 0:
            theirs = (thread for thread in threads if not of_profd(thread.name))
            return max(theirs, key=lambda thread: thread.ran_ns, default=None)
        known = str(tracks[number].get("id")) if number < len(tracks) else ""
        return next((thread for thread in threads if str(thread.id) == known), None)

    def thread_name(self, thread: ThreadTimes) -> str:
        """As Python knows it, where a track has that; the kernel's is the program's in most threads."""
        known = (track.get("name") for track in self.reader.tracks.threads if str(track.get("id")) == str(thread.id))
        named = kernel_name(thread, self.reader.meta)
        name = next((str(name) for name in known if name), named) or f"Thread {thread.id}"
        return name if len(name) <= NAME_CHARACTERS else f"{name[: NAME_CHARACTERS - 1]}…"

    @property
    def thread(self) -> int:
        """The track of that thread; -1: none has it."""
        if self.measured.thread >= 0 or (times := self.kernel_times) is None:
            return self.measured.thread
        tracks = enumerate(self.reader.tracks.threads)
        return next((number for number, track in tracks if str(track.get("id")) == str(times.id)), -1)

    @cached_property
    def outside(self) -> Outside | None:
        """What samples saw of that thread outside operators: a second pass. None: there are no samples."""
        if not self.has_samples or self.thread < 0:
            return None
        found = Outside(self.reader.meta, self.thread)
        for table in self.tables((*COVER_COLUMNS, *OUTSIDE_COLUMNS)):
            found.add(table)
        return found

    def sampled_in(self, spans: Spans) -> list[tuple[str, int, list[int]]]:
        """The program's functions that samples saw within these spans, outside operators and beside no device's work.

        Name, ns, rows; most time first; empty without samples.
        """
        rest = self._rest(spans)
        return [] if self.outside is None or rest is None else self.outside.of_program(self.thread, rest)

    def sampled_in_callbacks(self) -> list[tuple[str, int, list[int]]]:
        """The same of what callbacks of asyncio's event loop did in the measured part."""
        rest = self._rest(self.measured.spans)
        return [] if self.outside is None or rest is None else self.outside.of_callbacks(self.thread, rest)

    def sampled_innermost(self, climb: Callable[[str], bool]) -> list[tuple[str, Spans, list[int]]]:
        """The functions that samples most often saw innermost in the measured part, within operators or not.

        Name, when that was, rows; empty without samples. `climb`: functions whose time is their caller's.
        """
        found = [] if self.outside is None else self.outside.innermost(self.thread, climb)
        return [
            (one.name, self.measured_part(Spans(*one.within).without(Spans(*one.below))), one.rows) for one in found
        ]

    def _rest(self, spans: Spans) -> tuple[Array, Array] | None:
        """What of the window does not count: what lies outside of these spans, or beside a device's work."""
        if (window := window_of(self.reader.meta)) is None:
            return None
        whole = Spans(*(np.array([edge], dtype=np.int64) for edge in window))
        rest = whole.without(spans.without(self.busy) if len(self.work) else spans)
        return rest.start, rest.end

    def name(self, code: int) -> str:
        """A name by its code; empty for NO_CODE."""
        return self.reader.dictionaries["name"].values[code] if code >= 0 else ""


def _check_work(rows: int) -> None:
    if rows > DEVICE_WORK_MAX:
        raise Exhausted(
            f"this question needs all {rows:,} kernels, copies and fills at once, and {DEVICE_WORK_MAX:,} are the most "
            f"that it works with: {_INSTEAD}"
        )


class _SamplesSeen:
    def __init__(self) -> None:
        self.any = False

    def add(self, table: EventTable) -> None:
        self.any = self.any or bool((table.column("kind") == Kind.SAMPLE).any())


class _MemoryGathered:
    def __init__(self) -> None:
        self._named = rules.Named(MEMORY_NAME.__eq__)
        self._parts: list[tuple[Array, ...]] = []
        self.rows = 0  # that are held

    def add(self, table: EventTable) -> None:
        if "bytes" not in table.columns:
            return
        rows = np.flatnonzero(self._named.of(table))
        rows = rows[table.columns["bytes"][rows] != NO_END]
        self.rows += len(rows)
        self._parts.append(tuple(table.column(name)[rows] for name in ("device_type", "device", "start", "bytes")))

    def allocations(self) -> list[Allocations]:
        place, device, time, size = joined(self._parts, 4)
        kinds = np.unique(place).tolist()
        places = [(kind, number) for kind in kinds for number in np.unique(device[place == kind]).tolist()]
        found = []
        for kind, number in places[:DEVICES_MAX]:
            at = np.flatnonzero((place == kind) & (device == number))
            found.append(Allocations(kind, number, time[at], size[at]))
        return found
