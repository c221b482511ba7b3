"""Chrome trace JSON, as chrome://tracing and Perfetto open it.

The contents of an imported file come back: events in their phases with their arguments, flows, names of tracks and the
keys beside `traceEvents`. Differences that remain: times have three decimals (whole ns), metadata is written once per
track, and NaN, which is no JSON, has become a string. Argument columns: see profd.decode.chrome. Several traces are
written one after the other, with processes and ids of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from profd._scan import ChromeWriter
from profd.decode.chrome import base_ns_of
from profd.events import NO_ROW, ArgColumn, Dictionary, EventTable, Flows, Tracks
from profd.events.table import Array
from profd.export.derived import CATEGORY, DrawnLine, drawn_lines
from profd.export.links import with_derived
from profd.export.merged import ABOUT, Merged, Part, Pids
from profd.export.own_ids import OwnIds, TraceIds
from profd.export.rows import tables, without_lists
from profd.query import rules
from profd.query.part import numbers_of
from profd.segments.meta import read_meta
from profd.segments.reader import TraceReader, Window
from profd.workers.jobs import Progress

_REQUIRED: Final = ("name", "cat", "thread", "kind", "phase", "start", "end")
_OPTIONAL: Final = (
    "external",
    "correlation",
    "stream",
    "device",
    "context",
    "sequence",
    "fwd_thread",
    "bytes",
    "ptr",
    "total_allocated",
    "total_reserved",
    "stack",
    "module",
    "inputs",
    "value",
    "weight",
)
_ASYNC: Final = ("is_async", "end_thread")
# JSON texts; the other dictionaries hold plain strings.
_JSON_DICTIONARIES: Final = frozenset({"inputs", "flow_id"})
_ROWS_AT_ONCE: Final = 1 << 15  # about 10 MB of text
_SECOND_NS: Final = 1_000_000_000
_DEVICES: Final = "deviceProperties"


def write(
    reader: TraceReader,
    out: BinaryIO,
    window: Window | None,
    progress: Progress,
    min_duration_ns: int = 0,
    derived_flows: bool = False,
) -> int:
    """Write the events that overlap a window (Unix ns) or all; returns how many.

    `min_duration_ns` leaves shorter events out, but not counters. Flows come along
    where the event they are bound to does; unbound ones by their time. `derived_flows`
    adds links from forward to backward ops to a trace that has none.
    """
    top_level = dict(reader.meta.top_level)
    if "baseTimeNanoseconds" not in top_level and reader.meta.known_traits.samples:
        # Unix µs have too many digits for the doubles of viewers.
        top_level["baseTimeNanoseconds"] = _whole_second(reader.meta.start_ns or 0)
    base = base_ns_of(top_level.get("baseTimeNanoseconds"))
    records = Records(out, top_level)
    count = _TraceRecords(reader, Place(reader.tracks, base), window, min_duration_ns, derived_flows).write(
        records, progress
    )
    records.end()
    return count


def write_merged(merged: Merged, out: BinaryIO, progress: Progress, derived_flows: bool = False) -> int:
    """Write all traces, one after the other: no order is asked of records."""
    pids, ids, base = Pids(), OwnIds(), _whole_second(merged.start_ns)
    records = Records(out, {ABOUT: merged.about, "baseTimeNanoseconds": base, **_devices(merged)})

    def one(number: int, part: Part, reader: TraceReader, heard: Progress) -> int:
        tracks = pids.tracks(reader.tracks, part, number, all_numbered=True)
        place = Place(tracks, base + part.placed.ahead_ns, ids.of_next_trace(reader.tracks, tracks))
        return _TraceRecords(reader, place, part.window, merged.min_duration_ns, derived_flows).write(records, heard)

    count = merged.write_each(one, progress)
    records.end()
    return count


def _whole_second(ns: int) -> int:
    return ns - ns % _SECOND_NS


def _devices(merged: Merged) -> dict[str, Any]:
    """Devices of the first trace that says any: an import knows by them whose kernels these are."""
    said = (read_meta(part.member.directory).top_level for part in merged.parts if part.member.directory is not None)
    return next(({_DEVICES: one[_DEVICES]} for one in said if _DEVICES in one), {})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a trace is in its file."""

    tracks: Tracks  # as they are shown
    base_ns: int  # time of its clock that is 0 there
    ids: TraceIds | None = None  # None: it is alone, and keeps its own


class Records:
    """The file: what it says of itself, and records with commas between them."""

    def __init__(self, out: BinaryIO, top_level: Mapping[str, Any]) -> None:
        self._out = out
        self._any = False
        members = "".join(f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in top_level.items())
        out.write(f'{{\n{members}"traceEvents": [\n'.encode())

    def add(self, text: bytes, *, leads: bool = False) -> None:
        """Some records. `leads`: with the comma already, where it is not the first text of its writer."""
        if not text:
            return
        if self._any and not leads:
            self._out.write(b",\n")
        self._out.write(text)
        self._any = True

    def end(self) -> None:
        """Close the file's brackets."""
        self._out.write(b"\n]\n}\n")


class _TraceRecords:
    """The records of one trace; `write` is called once."""

    def __init__(
        self, reader: TraceReader, place: Place, window: Window | None, min_duration_ns: int, derived_flows: bool
    ) -> None:
        self._reader = reader
        self._place = place
        self._derived_flows = derived_flows
        self._window = window
        self._min_duration = min_duration_ns
        self._whole = window is None and min_duration_ns == 0
        self._writer = ChromeWriter(place.base_ns)
        self._pairs = _Pairs(place.tracks)
        self._lists = Dictionary()
        self._known: dict[str, int] = {}  # strings the writer has, by dictionary
        self._written = np.zeros(0 if self._whole else len(reader), dtype=bool)  # rows, for their flows

    def write(self, records: Records, progress: Progress) -> int:
        """All of them; how many events these are."""
        self._set_tracks()
        total, count = max(1, len(self._reader)), 0
        for table in self._tables():
            for text in self._events(table):
                # The writer sets commas between what it has written itself.
                records.add(text, leads=text.startswith(b","))
            count += len(table)
            progress("exporting", min(1.0, count / total))
        for line in drawn_lines(self._reader, self._window, self._min_duration):
            records.add(self._drawn(line))
        flows = self._flows()
        records.add(flows, leads=flows.startswith(b","))
        records.add(self._metadata())
        return count

    def _drawn(self, line: DrawnLine) -> bytes:
        """A derived line, on a thread of its own of its process."""
        place = {"cat": CATEGORY, "pid": self._place.tracks.processes[line.process]["id"], "tid": line.title}
        base, where = self._place.base_ns, json.dumps(place)[1:-1]
        records = (
            f'{{"ph": "X", {where}, "name": {json.dumps(name)}, "ts": {_us(start - base)}, "dur": {_us(end - start)}}}'
            for name, start, end in line.spans
        )
        return ",\n".join(records).encode("ascii")

    def _set_tracks(self) -> None:
        tracks = self._place.tracks
        self._writer.set_tracks(
            [_token(process["id"]) for process in tracks.processes],
            [_token(thread["id"]) for thread in tracks.threads],
            [thread["process"] for thread in tracks.threads],
        )

    def _tables(self) -> Iterator[EventTable]:
        for table in tables(self._reader, [*_REQUIRED, *_OPTIONAL, *_ASYNC], self._window, self._min_duration):
            if not self._whole:
                self._written[table.columns["row"]] = True
            self._pairs.apply(table)
            if self._place.ids is not None:
                self._place.ids.apply(table)
            yield without_lists(table, self._lists)

    def _events(self, table: EventTable) -> Iterator[bytes]:
        columns = {name: np.ascontiguousarray(table.column(name)) for name in _REQUIRED}
        columns |= {name: np.ascontiguousarray(table.columns[name]) for name in _OPTIONAL if name in table.columns}
        for name in ("name", "cat", "stack", "module", "inputs"):
            if name in table.dictionaries:
                self._add(name, table.dictionaries[name].values, name in _JSON_DICTIONARIES)
        args = []
        for (key, kind), arg in table.args.items():
            if arg.dictionary is not None:
                self._add(f"{kind}:{key}", arg.dictionary.values, kind == "json")
            values = np.ascontiguousarray(arg.values)
            args.append((key, kind, np.ascontiguousarray(arg.rows, dtype=np.int64), values))
        for first in range(0, len(table), _ROWS_AT_ONCE):
            yield self._writer.write_events(len(table), columns, args, first, first + _ROWS_AT_ONCE)

    def _add(self, dictionary: str, values: list[str], is_json: bool) -> None:
        """Hand over what the writer does not know yet: dictionaries grow as segments are read."""
        known = self._known.get(dictionary, 0)
        if len(values) > known:
            self._writer.add_strings(dictionary, values[known:], is_json)
            self._known[dictionary] = len(values)

    def _flows(self) -> bytes:
        flows = with_derived(self._reader) if self._derived_flows else self._reader.flows()
        if not len(flows.id):
            return b""
        kept = self._kept_flows(flows)
        columns: dict[str, Array] = {
            name: np.ascontiguousarray(getattr(flows, name)[kept])
            for name in ("id", "category", "name", "thread", "phase", "time")
        }
        columns["enclosing"] = flows.enclosing[kept].astype(np.uint8)
        for name in ("name", "cat", "flow_id"):
            values = self._reader.dictionaries[name].values
            if name == "flow_id" and self._place.ids is not None:
                values = self._place.ids.flows(values)
            self._add(name, values, name in _JSON_DICTIONARIES)
        return self._writer.write_flows(len(columns["id"]), columns)

    def _kept_flows(self, flows: Flows) -> npt.NDArray[np.intp]:
        if self._whole:
            return np.arange(len(flows.id))
        bound = flows.row != NO_ROW
        kept = bound & self._written[np.where(bound, flows.row, 0)] if len(self._written) else bound & False
        low, high = self._window or (np.iinfo(np.int64).min, np.iinfo(np.int64).max)
        return np.flatnonzero(kept | (~bound & (flows.time >= low) & (flows.time < high)))

    def _metadata(self) -> bytes:
        tracks = self._place.tracks
        records: list[dict[str, Any]] = []
        for process in tracks.processes:
            place = {} if process["id"] is None else {"pid": process["id"]}
            for key, name in (
                ("name", "process_name"),
                ("labels", "process_labels"),
                ("sort_index", "process_sort_index"),
            ):
                if key in process:
                    records.append({"ph": "M", "name": name, **place, "tid": 0, "args": {key: process[key]}})
            kept = process.get("metadata", ())
            records += kept if self._place.ids is None else ({**record, **place} for record in kept)
        for thread in tracks.threads:
            pid = tracks.processes[thread["process"]]["id"]
            place = {} if pid is None else {"pid": pid}
            if thread["id"] is not None:
                place["tid"] = thread["id"]
            for key, name in (("name", "thread_name"), ("sort_index", "thread_sort_index")):
                if key in thread:
                    records.append({"ph": "M", "name": name, **place, "args": {key: thread[key]}})
        return ",\n".join(map(json.dumps, records)).encode()


def _us(ns: int) -> str:
    """Nanoseconds as decimal microseconds, exactly: Unix times have too many digits for a float."""
    return f"{'-' if ns < 0 else ''}{abs(ns) // 1000}.{abs(ns) % 1000:03}"


class _Pairs:
    """Asynchronous events that did not come from a Chrome trace become pairs there, each with an id of its own.

    Without ids, viewers and importers could not tell which end is whose where several of a name overlap.
    """

    def __init__(self, tracks: Tracks) -> None:
        self._tracks = tracks
        self._ids = Dictionary()  # of processes and threads, as JSON

    def apply(self, table: EventTable) -> None:
        """Set phases, and arguments that become members of the records."""
        rows = np.flatnonzero((table.column("is_async") != 0) | rules.ends_elsewhere(table))
        if not len(rows):
            return
        table.columns["phase"] = np.array(table.column("phase"))
        table.columns["phase"][rows] = ord("b")
        table.args["@id", "int"] = ArgColumn("int", rows, numbers_of(table)[rows])
        end_thread = table.column("end_thread")
        moved = rows[(end_thread[rows] != NO_ROW) & (end_thread[rows] != table.column("thread")[rows])]
        if len(moved):
            threads = [self._tracks.threads[at] for at in end_thread[moved].tolist()]
            self._set(table, "@end.tid", moved, [thread["id"] for thread in threads])
            self._set(table, "@end.pid", moved, [self._tracks.processes[thread["process"]]["id"] for thread in threads])

    def _set(self, table: EventTable, key: str, rows: Array, ids: list[Any]) -> None:
        codes = self._ids.codes([json.dumps(value) for value in ids])
        table.args[key, "json"] = ArgColumn("json", rows, np.array(codes, dtype=np.int32), self._ids)


def _token(track_id: Any) -> str:
    return "" if track_id is None else json.dumps(track_id)
