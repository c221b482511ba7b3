"""XSpace (*.xplane.pb), as XProf and TensorBoard open it.

A trace that was imported from an XSpace comes back: planes, lines, events and stats, in picoseconds;
what may differ is the order of events that is not the order of time, the order of stats within an
event, and the numbers of metadata that is only a name. Any other trace becomes /host:CPU with a line
for each thread, /device:GPU:n with a line for each stream, and "Task Environment" with the wall clock.
"""

from __future__ import annotations

from typing import Any, BinaryIO, Final

import numpy as np
from profproto.xspace import xplane_pb2

from profd.decode.xspace import ENVIRONMENT
from profd.decode.xspace_stats import CORRELATION
from profd.errors import Exhausted
from profd.events import NO_END, DeviceType, Dictionary, EventTable
from profd.events.table import Array
from profd.export import xspace_own
from profd.export.rows import tables, without_lists
from profd.export.xspace_plane import Plane, StatType, device_plane
from profd.limits import XSPACE_BYTES_MAX
from profd.model.text import encodable
from profd.query.whole import check_size
from profd.segments.reader import TraceReader, Window
from profd.segments.thrift import varint
from profd.workers.jobs import Progress

_ROWS_AT_ONCE: Final = 1 << 14  # their stats are Python objects meanwhile
_COLUMNS: Final = ("name", "kind", "start", "end", "start_ps", "end_ps", "process", "thread", "device_type", "device")
_OURS: Final = frozenset({"@metadata_id", "@display_name", "@num_occurrences"})
_NS_MAX: Final = (1 << 63) // 1000 // 2  # offsets in ps stay within 64 bits
_TAG: Final = b"\x0a"  # XSpace.planes


def write(
    reader: TraceReader, out: BinaryIO, window: Window | None, progress: Progress, min_duration_ns: int = 0
) -> int:
    """Write a window (Unix ns) or the whole trace; returns how many events were written.

    `min_duration_ns` leaves shorter events out, but not counters. Events a century
    and more away from the first are left out. Exhausted when the trace is too large
    for a worker or for protobuf.
    """
    if window is None:
        check_size(len(reader), "narrow it with --window")
    return _Export(reader, out, window, min_duration_ns).run(progress)


class _Export:
    def __init__(self, reader: TraceReader, out: BinaryIO, window: Window | None, min_duration_ns: int) -> None:
        self._reader = reader
        self._out = out
        self._window = window
        self._min_duration = min_duration_ns
        self._start = reader.meta.start_ns or 0
        self._titles = xspace_own.thread_titles(reader.tracks)
        self._recorded: dict[int, Plane] = {
            number: Plane.recorded(process.get("name", ""), process["xspace"])
            for number, process in enumerate(reader.tracks.processes)
            if isinstance(process.get("xspace"), dict)
        }
        self._own: dict[str, Plane] = {}
        self._lines: dict[tuple[int, int, str], tuple[Plane, Any, int]] = {}  # -> plane, line, Unix ns of its zero
        self._streams: dict[int, tuple[Any, int, set[str]]] = {}

    def run(self, progress: Progress) -> int:
        self._recorded_lines()
        written, total = 0, max(1, len(self._reader))
        columns = [*_COLUMNS, *xspace_own.COLUMNS]
        for table in tables(self._reader, columns, self._window, self._min_duration):
            check_size(written + len(table), "narrow it with --window")
            for first in range(0, len(table), _ROWS_AT_ONCE):
                some = table.take(np.arange(first, min(first + _ROWS_AT_ONCE, len(table))))
                written += self._add(some)
            progress("exporting", min(0.9, written / total))
        self._finish()
        return written

    def _recorded_lines(self) -> None:
        """All of them, in their order, also those without an event in the window."""
        for number, thread in enumerate(self._reader.tracks.threads):
            plane = self._recorded.get(thread["process"])
            if plane is not None:
                line = plane.line(thread)
                base = plane.base_ns if thread.get("xspace", {}).get("relative") else 0
                self._lines[thread["process"], number, ""] = plane, line, base + line.timestamp_ns

    def _add(self, table: EventTable) -> int:
        process, thread = table.column("process"), table.column("thread")
        kinds, device = table.column("device_type"), table.column("device")
        on_device = ~np.isin(kinds, (DeviceType.CPU, DeviceType.OTHER))
        order = np.lexsort((device, kinds, on_device, thread, process))
        keys = np.stack(
            [process[order], thread[order], on_device[order], kinds[order] * on_device[order], device[order]]
        )
        # Hosts have no device, whatever their rows say.
        keys[4][~on_device[order]] = 0
        cuts = np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)) + 1
        values = _Values(table)
        written = 0
        for rows in np.split(order, cuts):
            if not len(rows):
                continue
            at = int(rows[0])
            place = device_plane(int(kinds[at]), int(device[at])) if on_device[at] else ""
            written += self._add_line(table, np.sort(rows), values, (int(process[at]), int(thread[at]), place))
        return written

    def _add_line(self, table: EventTable, rows: Array, values: _Values, key: tuple[int, int, str]) -> int:
        recorded = key[0] in self._recorded
        if recorded:
            key = (key[0], key[1], "")
        if key not in self._lines:
            self._lines[key] = self._new_line(key, table, int(rows[0]))
        plane, line, zero = self._lines[key]
        start, end = table.columns["start"][rows], table.column("end")[rows]
        end = np.where(end == NO_END, start, end)
        # In Python's integers: differences of foreign times overflow.
        near = [
            abs(at - zero) < _NS_MAX and abs(to - at) < _NS_MAX
            for at, to in zip(start.tolist(), end.tolist(), strict=True)
        ]
        rows, start, end = rows[near], start[near], end[near]
        start_ps = table.column("start_ps")[rows].astype(np.int64)
        offset = (start - zero) * 1000 + start_ps
        duration = (end - start) * 1000 + table.column("end_ps")[rows] - start_ps
        stats = _stats_of(plane, values, recorded)
        for row, at, lasts in zip(rows.tolist(), offset.tolist(), duration.tolist(), strict=True):
            event = line.events.add(metadata_id=self._metadata(plane, values, row), duration_ps=lasts)
            occurrences = values.occurrences.get(row)
            if occurrences is None:
                event.offset_ps = at
            else:
                event.num_occurrences = occurrences
            for (name, type_), value in stats(row):
                plane.add_stat(event.stats, name, type_, value)
        if not recorded:
            self._note_stream(line, table, rows)
        return len(rows)

    def _metadata(self, plane: Plane, values: _Values, row: int) -> int:
        number: int | None = values.metadata.get(row)
        if number is not None:
            return number
        return plane.event_id(values.name(row), values.display.get(row, ""))

    def _new_line(self, key: tuple[int, int, str], table: EventTable, row: int) -> tuple[Plane, Any, int]:
        _, thread, place = key
        name = place or xspace_own.HOST_PLANE
        plane = self._own.get(name)
        if plane is None:
            plane = self._own[name] = Plane(name)
            vendor = xspace_own.VENDORS.get(int(table.column("device_type")[row]))
            if vendor:
                plane.add_stat(plane.message.stats, "device_vendor", "str", vendor)
        tracks = self._reader.tracks.threads
        wanted = tracks[thread]["id"] if 0 <= thread < len(tracks) else 0
        title = self._titles[thread] if 0 <= thread < len(self._titles) else "no thread"
        stream = int(table.column("stream")[row])
        if place and stream != NO_END:
            wanted = stream
        return plane, plane.new_line(wanted, title), self._start

    def _note_stream(self, line: Any, table: EventTable, rows: Array) -> None:
        kinds: list[int] = np.unique(table.column("kind")[rows]).tolist()
        if bool((table.column("device_type")[rows] > DeviceType.CPU).any()):
            entry = self._streams.setdefault(id(line), (line, int(line.id), set()))
            entry[2].update(xspace_own.stream_types(kinds))

    def _finish(self) -> None:
        for line, number, types in self._streams.values():
            if types:
                line.name = f"Stream #{number}({','.join(sorted(types))})"
        planes = [*self._recorded.values(), *self._own.values()]
        if self._own and not self._recorded:
            planes.append(self._environment())
        size = 0
        head = _texts(self._reader.meta.top_level.get("xspace"))
        try:
            for content in (plane.message.SerializeToString() for plane in planes):
                size += len(content) + 11
                if size + len(head) > XSPACE_BYTES_MAX:
                    raise _too_large()
                self._out.write(_TAG + varint(len(content)) + content)
        except ValueError as error:  # protobuf's own limit
            raise _too_large() from error
        self._out.write(head)

    def _environment(self) -> Plane:
        plane = Plane(ENVIRONMENT)
        end = self._reader.meta.end_ns or self._start
        for name, value in (("profile_start_time", self._start), ("profile_stop_time", end)):
            plane.add_stat(plane.message.stats, name, "uint64", max(0, value))
        return plane


class _Values:
    """Of some rows what their events are made of, by row, as Python values."""

    def __init__(self, table: EventTable) -> None:
        self.table = table
        self._names = table.dictionaries["name"].values if "name" in table.dictionaries else []
        self._codes = table.column("name").tolist()
        self.metadata = _by_row(table, "@metadata_id", "int")
        self.display = _by_row(table, "@display_name", "str")
        self.occurrences = _by_row(table, "@num_occurrences", "int")
        self.correlation = table.column("correlation").tolist()
        without_lists(table, Dictionary())
        self.stats: dict[int, list[tuple[tuple[str, str], Any]]] = {}
        for (key, kind), arg in table.args.items():
            if key in _OURS:
                continue
            words = arg.dictionary.values if arg.dictionary is not None else None
            for row, value in zip(arg.rows.tolist(), arg.values.tolist(), strict=True):
                self.stats.setdefault(row, []).append(((key, kind), value if words is None else words[value]))

    def name(self, row: int) -> str:
        """The name of an event."""
        code = self._codes[row]
        return self._names[code] if code >= 0 else ""


def _by_row(table: EventTable, key: str, kind: str) -> dict[int, Any]:
    arg = table.args.get((key, kind))
    if arg is None:
        return {}
    values = arg.values.tolist()
    if arg.dictionary is not None:
        values = [arg.dictionary.values[value] for value in values]
    return dict(zip(arg.rows.tolist(), values, strict=True))


def _stats_of(plane: Plane, values: _Values, recorded: bool) -> Any:
    """A function from a row to its stats: [((name, type), value), …]."""
    known: dict[tuple[str, str], StatType] = {}

    def of(row: int) -> list[tuple[StatType, Any]]:
        found = []
        for key, value in values.stats.get(row, ()):
            stat = known.get(key)
            if stat is None:
                stat = known[key] = plane.stat_of(*key)
            found.append((stat, value))
        correlation = values.correlation[row]
        if correlation != NO_END:
            found.append(((CORRELATION, plane.correlation_type), correlation))
        return found

    return of if recorded else xspace_own.stats_of(values.table, values.name, values.stats)


def _texts(kept: Any) -> bytes:
    """Errors, warnings and hostnames; the key may be a foreign trace's own."""
    if not isinstance(kept, dict):
        return b""
    space = xplane_pb2.XSpace()
    for field in ("errors", "warnings", "hostnames"):
        given = kept.get(field)
        if isinstance(given, list):
            getattr(space, field).extend(encodable(value) for value in given if isinstance(value, str))
    return bytes(space.SerializeToString())


def _too_large() -> Exhausted:
    return Exhausted("The trace is more than 2 GiB as an XSpace, which protobuf cannot hold: narrow it with --window.")
