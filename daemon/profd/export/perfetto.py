"""Perfetto's own format: a protobuf of TrackEvents, which its UI and trace processor read several times faster
than JSON.

Processes, threads and device streams are explicit tracks; strings are interned; flows (forward to backward,
launch to kernel) are kept. Slices of a track must nest there, so what overlaps lies on tracks of its own beneath. An
event whose end was not seen has none here either. Written in the order of starts, with bounded memory; several traces
one after the other, each with packets, tracks and flows of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

import numpy as np

from profd.events import NO_CODE, NO_END, NO_ROW, Dictionary, EventTable, Kind, Tracks
from profd.events.distinct import distinct
from profd.events.table import Array
from profd.export import wire
from profd.export.derived import CATEGORY, DrawnLine, drawn_lines
from profd.export.links import with_derived
from profd.export.merged import ABOUT, Merged, Part, Pids
from profd.export.perfetto_notes import NOTE_COLUMNS, Interned, Notes, counter_values
from profd.export.perfetto_tracks import SliceLanes, TrackTable
from profd.export.rows import tables, without_lists
from profd.query import rules
from profd.query.part import numbers_of
from profd.segments.reader import TraceReader, Window
from profd.workers.jobs import Progress

_COLUMNS: Final = ("name", "cat", "kind", *rules.ASYNC_COLUMNS, "start", "end", "thread", "value", *NOTE_COLUMNS)
_BEGIN, _END, _INSTANT, _COUNTER = (wire.integer(9, kind) for kind in (1, 2, 3, 4))
_NO_END: Final = 1 << 63  # later than every end
_BYTES_AT_ONCE: Final = 1 << 18
# The sequence of a trace's packets; it has interned strings, and the first packet begins them.
_SEQUENCE, _STRINGS = 10, 13
_BOOT, _REALTIME = 6, 1
_FLOW, _LAST_OF_FLOW = 47, 48
_Intern = Callable[[str], int]


def write(
    reader: TraceReader, out: BinaryIO, window: Window | None, progress: Progress, min_duration_ns: int = 0
) -> int:
    """Write the events that overlap a window (Unix ns) or all, and last so long; returns how many."""
    shift = shift_for(reader.meta.start_ns or 0)
    return TraceFile(reader, out, Place(reader.tracks, shift)).run(window, min_duration_ns, progress)


def write_merged(merged: Merged, out: BinaryIO, progress: Progress) -> int:
    """Write all traces, one after the other: Perfetto sorts what it reads."""
    pids, taken, shift = Pids(), Taken(), shift_for(merged.start_ns)

    def one(number: int, part: Part, reader: TraceReader, heard: Progress) -> int:
        tracks = pids.tracks(reader.tracks, part, number, all_numbered=False)
        about = merged.about if number == 0 else None
        place = Place(tracks, shift - part.placed.ahead_ns, number + 1, taken, about)
        return TraceFile(reader, out, place).run(part.window, merged.min_duration_ns, heard)

    return merged.write_each(one, progress)


def shift_for(first_ns: int) -> int:
    """What is added to all times of a file, which are unsigned there."""
    return max(0, -first_ns)


@dataclass(slots=True)
class Taken:
    """Numbers that traces before have in the file."""

    tracks: int = 0
    flows: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a trace is in its file."""

    tracks: Tracks  # as they are shown
    shift_ns: int  # is added to its times
    sequence: int = 1  # of its packets; that of the file's first trace is 1
    taken: Taken = field(default_factory=Taken)
    about: dict[str, Any] | None = None  # what the file says of itself


class TraceFile:
    """A trace as packets of a file; `run` is called once."""

    def __init__(self, reader: TraceReader, out: BinaryIO, place: Place) -> None:
        self._reader = reader
        self._place = place
        self._sequence = wire.integer(_SEQUENCE, place.sequence)
        self._first = self._sequence + wire.integer(_STRINGS, 1)
        self._later = self._sequence + wire.integer(_STRINGS, 2)
        self._out = out
        self._waiting = bytearray()
        self._interned = Interned()
        self._notes = Notes(self._interned)
        self._tracks = TrackTable(place.tracks, place.taken.tracks)
        self._lists = Dictionary()
        self._lanes: dict[tuple[int, bool], SliceLanes] = {}
        self._flows = _Flows(reader, place.taken.flows)

    def run(self, window: Window | None, min_duration_ns: int, progress: Progress) -> int:
        """Write the events that overlap a window and last so long; how many they are."""
        self._begin()
        total, count = max(1, len(self._reader)), 0
        for table in tables(self._reader, _COLUMNS, window, min_duration_ns):
            self._write_table(without_lists(table, self._lists))
            count += len(table)
            progress("exporting", min(1.0, count / total))
        for lanes in self._lanes.values():
            self._close(lanes, lanes.close())
        for line in drawn_lines(self._reader, window, min_duration_ns):
            self._draw(line)
        self._flush(0)
        taken = self._place.taken
        taken.tracks, taken.flows = self._tracks.last, self._flows.last
        return count

    def _begin(self) -> None:
        self._packet(self._first + wire.integer(87, 1))
        if self._place.sequence > 1:  # the first trace has said it of the file
            return
        # The trace's clock starts at boot; at this instant both show the same, so that times are Unix ns.
        begin = (self._reader.meta.start_ns or 0) + self._place.shift_ns
        start = wire.integer(2, begin)
        clocks = [wire.message(1, wire.integer(1, clock), start) for clock in (_BOOT, _REALTIME)]
        self._packet(wire.message(6, *clocks) + self._later)
        if self._place.about is not None:
            text = json.dumps({ABOUT: self._place.about})
            said = wire.message(2, wire.text(1, ABOUT), wire.text(5, text))  # a row of the table `metadata`
            self._packet(wire.integer(8, begin) + self._later + wire.message(5, said))

    def _write_table(self, table: EventTable) -> None:
        start, end = table.columns["start"], table.column("end")
        end = np.where(end == NO_END, np.iinfo(np.int64).max, np.maximum(end, start))
        # Longer first among equal starts: what they enclose comes after them.
        order = np.lexsort((-end, start))
        heads = self._heads(table)
        notes = self._notes.of(table)
        rows, thread, kind = numbers_of(table).tolist(), table.column("thread").tolist(), table.column("kind")
        is_async = rules.is_async(table).tolist()
        instant = (rules.is_kind(kind, Kind.INSTANT, Kind.MEMORY) & (end == start)).tolist()
        counter = rules.is_kind(kind, Kind.COUNTER).tolist()
        series = counter_values(table) if any(counter) else {}
        unended = (table.column("end") == NO_END).tolist()
        begins, ends = start.tolist(), end.tolist()
        for at in order.tolist():
            body = heads[at] + notes[at] + self._flows.of(rows[at])
            if counter[at]:
                self._count(begins[at], thread[at], self._name(table, at), series.get(at, []))
            elif instant[at]:
                track = wire.integer(11, self._tracks.thread(thread[at]))
                self._event(begins[at], _INSTANT + track + body)
            else:
                self._slice(begins[at], _NO_END if unended[at] else ends[at], thread[at], is_async[at], body)

    def _draw(self, line: DrawnLine) -> None:
        """A derived line under its process."""
        owner = self._tracks.process(line.process)
        lanes, category = SliceLanes([]), wire.integer(3, self._interned.category(CATEGORY))
        for name, start, end in line.spans:
            lane, _, closed = lanes.place(start, end)
            while lane >= len(lanes.uuids):
                number = f" {len(lanes.uuids) + 1}" if lanes.uuids else ""
                lanes.uuids.append(self._tracks.under(owner, line.title + number))
            self._close(lanes, closed)
            body = wire.integer(10, self._interned.name(name)) + category
            self._event(start, _BEGIN + wire.integer(11, lanes.uuids[lane]) + body)
        self._close(lanes, lanes.close())

    def _name(self, table: EventTable, at: int) -> str:
        code = int(table.column("name")[at])
        return table.dictionaries["name"].values[code] if code != NO_CODE else ""

    def _heads(self, table: EventTable) -> list[bytes]:
        """Name and category of each row."""
        names = self._by_code(table, "name", 10, self._interned.name)
        cats = self._by_code(table, "cat", 3, self._interned.category)
        pairs = zip(table.column("name").tolist(), table.column("cat").tolist(), strict=True)
        return [names[name] + cats[cat] for name, cat in pairs]

    def _by_code(self, table: EventTable, column: str, field: int, intern: _Intern) -> dict[int, bytes]:
        codes = np.unique(table.column(column)).tolist()
        words = table.dictionaries[column].values if column in table.dictionaries else []
        return {code: wire.integer(field, intern(words[code])) if code != NO_CODE else b"" for code in codes}

    def _slice(self, start: int, end: int, thread: int, is_async: bool, body: bytes) -> None:
        lanes = self._lanes.get((thread, is_async))
        if lanes is None:
            lanes = self._lanes[thread, is_async] = SliceLanes([])
        lane, _, closed = lanes.place(start, end)
        while lane >= len(lanes.uuids):
            number = len(lanes.uuids) + is_async
            lanes.uuids.append(self._tracks.thread(thread, number, "async" if is_async else "overlapping"))
        self._close(lanes, closed)
        self._event(start, _BEGIN + wire.integer(11, lanes.uuids[lane]) + body)

    def _close(self, lanes: SliceLanes, closed: list[tuple[int, int]]) -> None:
        for lane, end in closed:
            if end != _NO_END:
                self._event(end, _END + wire.integer(11, lanes.uuids[lane]))

    def _count(self, time: int, thread: int, name: str, values: list[tuple[str, float]]) -> None:
        owner = self._tracks.process_of(thread)
        for series, value in values:
            # A counter with one series is told by its own name.
            title = f"{name} {series}".strip() if series != name else name
            track = wire.integer(11, self._tracks.counter(owner, title))
            self._event(time, _COUNTER + track + wire.double(44, value))

    def _event(self, time: int, body: bytes) -> None:
        stamp = wire.integer(8, time + self._place.shift_ns)
        self._packet(stamp + self._later + wire.message(11, body))

    def _packet(self, fields: bytes) -> None:
        # Strings and tracks come before what refers to them.
        for descriptor in self._tracks.waiting:
            self._waiting += wire.message(1, self._sequence, wire.message(60, descriptor))
        self._tracks.waiting.clear()
        if self._interned.waiting:
            self._waiting += wire.message(1, self._later, wire.message(12, *self._interned.waiting))
            self._interned.waiting.clear()
        self._waiting += wire.message(1, fields)
        self._flush(_BYTES_AT_ONCE)

    def _flush(self, unless_below: int) -> None:
        if len(self._waiting) >= max(1, unless_below):
            self._out.write(self._waiting)
            self._waiting = bytearray()


class _Flows:
    """Flow ids of rows: the recorded flows, and launch to device work where no flow was recorded for it."""

    def __init__(self, reader: TraceReader, after: int) -> None:
        flows = with_derived(reader)
        bound = np.flatnonzero(flows.row != NO_ROW)
        # An id means a flow within its category only.
        _, flow = distinct(flows.category[bound], flows.id[bound])
        last = flows.phase[bound] == ord("f")
        row, ids = flows.row[bound], flow + 1 + after
        work, launch = _linked(reader)
        new = ~np.isin(work, row)
        work, launch = work[new], launch[new]
        own = np.arange(len(work)) + int(ids.max(initial=after)) + 1
        self.last = int(own.max(initial=int(ids.max(initial=after))))
        self._fields: dict[int, bytes] = {}
        self._add(row[~last], ids[~last], _FLOW)
        self._add(row[last], ids[last], _LAST_OF_FLOW)
        self._add(launch, own, _FLOW)
        self._add(work, own, _LAST_OF_FLOW)

    def _add(self, rows: Array, ids: Array, field: int) -> None:
        known = self._fields
        for row, number in zip(rows.tolist(), ids.tolist(), strict=True):
            known[row] = known.get(row, b"") + wire.fixed64(field, number)

    def of(self, row: int) -> bytes:
        """The fields of a row."""
        return self._fields.get(row, b"")


def _linked(reader: TraceReader) -> tuple[Array, Array]:
    """(rows of device work, rows of their launches)."""
    work, launch = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for table in reader.iterate(["linked"], args=False):
        linked = table.column("linked")
        rows = np.flatnonzero(linked != NO_ROW)
        work.append(rows + table.first_row)
        launch.append(linked[rows])
    return np.concatenate(work), np.concatenate(launch)
