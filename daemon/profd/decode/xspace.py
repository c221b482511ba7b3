"""XSpace (*.xplane.pb of XLA, JAX and TensorFlow) to EventTable batches.

Planes are processes, lines are threads. Everything else is kept too, see profd.decode.xspace_plane,
xspace_stats and docs/xspace.md; profd.export.xspace writes it back. Arguments of our own:

    @metadata_id      which event metadata, where the name alone does not tell
    @display_name     what XProf shows instead of the name
    @num_occurrences  of an aggregate, which has no place in time and is shown at the start of its line
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import numpy as np

from profd import limits
from profd._scan import xspace_events
from profd.decode import xspace_kinds as kinds
from profd.decode.batch import Batch, Decoder, Findings
from profd.decode.xspace_cost import check, check_cost
from profd.decode.xspace_plane import NAME, Plane
from profd.decode.xspace_stats import Arguments, PlaneStats
from profd.decode.xspace_tracks import PlaneTrack
from profd.decode.xspace_wire import Span, Wire
from profd.errors import BadTrace, Exhausted
from profd.events import NO_END, ArgColumn, Dictionary, EventTable, Kind, Tracks
from profd.events.table import Array

EVENTS_AT_ONCE: Final = 1 << 16
STATS_AT_ONCE: Final = 1 << 20
ENVIRONMENT: Final = "Task Environment"
_PLANES, _ERRORS, _WARNINGS, _HOSTNAMES = range(1, 5)
_TEXTS: Final = {_ERRORS: "errors", _WARNINGS: "warnings", _HOSTNAMES: "hostnames"}
_TEXTS_MAX: Final = 1000
_LINE_FIELDS: Final = {1: "id", 3: "timestamp_ns", 9: "duration_ps", 10: "display_id"}
_LINE_TEXTS: Final = {2: "name", 11: "display_name"}
_NS_MAX: Final = 1 << 61  # of what a line is from 1970; what is beyond has no events in time


@dataclass(slots=True)
class _Line:
    """A line as far as it is not events. `base` is the Unix time of offset 0, in ns."""

    fields: dict[str, Any]
    base: int
    thread: int
    place: kinds.Place
    kind: Kind | None


class XSpaceDecoder(Decoder):
    """Decodes one file of `size` bytes.

    Memory: the file, a slice of events, and the metadata of one plane.
    """

    def __init__(
        self,
        file: BinaryIO,
        size: int,
        dictionaries: dict[str, Dictionary] | None = None,
        tracks: Tracks | None = None,
    ) -> None:
        if size > limits.XSPACE_BYTES_MAX:
            raise BadTrace(f"the XSpace has {size} bytes; protobuf allows {limits.XSPACE_BYTES_MAX}")
        super().__init__(file, dictionaries, tracks)
        self._names = self.dictionaries.setdefault("name", Dictionary())
        self.dictionaries.setdefault("cat", Dictionary())
        self._size = size
        self._arguments = Arguments(self.findings)
        self._session_ns = 0
        self._pid: int | None = None
        self._metadata_room = limits.XSPACE_METADATA_BYTES_MAX
        self._hostname = ""
        # Tracks of earlier files, of which each plane may continue one.
        self._first_process = len(self.tracks.processes)
        self._identities = {str(process["id"]): number for number, process in enumerate(self.tracks.processes)}
        self._namesakes: dict[str, int] = {}  # by what planes call themselves: the number of the last one
        self._continued: set[int] = set()

    def batches(self) -> Generator[Batch]:
        """Yield batches of at most EVENTS_AT_ONCE. Raises BadTrace if there is no plane at all."""
        self._file.seek(0)
        wire = Wire.of(self._file, self._size, self.findings)
        spans = self._outline(wire)
        if not spans:
            raise BadTrace("the file has no XPlane in it: it is no XSpace, or an empty one", 0)
        check_cost(wire, spans)
        self._find_session(wire, spans)
        for span in spans:
            yield from self._plane(wire, span)
            self._file.seek(span.last)

    def _outline(self, wire: Wire) -> list[Span]:
        planes: list[Span] = []
        texts: dict[str, list[str]] = {}
        for number, value in wire.fields(wire.whole, _PLANES, *_TEXTS):
            if not isinstance(value, Span):
                continue
            if number == _PLANES:
                planes.append(value)
                check(len(planes), limits.XSPACE_PLANES_MAX, "planes")
            elif len(kept := texts.setdefault(_TEXTS[number], [])) < _TEXTS_MAX:
                kept.append(wire.text(value)[:4096])
        self.findings.warnings += texts.get("errors", []) + texts.get("warnings", [])
        self._hostname = "".join(texts.get("hostnames", [])[:1])
        if texts:
            self.findings.top_level["xspace"] = texts
        return planes

    def _find_session(self, wire: Wire, spans: list[Span]) -> None:
        """When the session began, and of which process it is: planes without lines say so."""
        silent = Findings()
        quiet = Wire(wire.content, wire.size, silent)
        for span in spans:
            names = [quiet.text(value) for _, value in quiet.fields(span, NAME) if isinstance(value, Span)]
            name = names[-1] if names else ""
            if name not in (ENVIRONMENT, "/host:metadata"):
                continue
            plane = Plane(quiet, span, metadata_room=0)
            start, pid = plane.stat("profile_start_time"), plane.stat("process_id")
            if name == ENVIRONMENT and isinstance(start, int) and 0 < start < _NS_MAX:
                self._session_ns = start
                self.findings.top_level["baseTimeNanoseconds"] = start
            if isinstance(pid, int) and 0 < pid < 1 << 31:
                self._pid = pid

    def _plane(self, wire: Wire, span: Span) -> Iterator[Batch]:
        plane = Plane(wire, span, self._metadata_room)
        self._metadata_room = plane.metadata_room
        track = self._track(plane)
        stats = PlaneStats(plane, self._arguments, self.findings, track.record)
        for line_span in plane.lines:
            line = self._line(wire, line_span, plane, track)
            at = line_span.first
            while at < line_span.last:
                found = xspace_events(
                    wire.array,
                    at,
                    line_span.last,
                    line.base,
                    events=EVENTS_AT_ONCE,
                    stats=STATS_AT_ONCE,
                    event_stats=limits.XSPACE_EVENT_STATS_MAX,
                    stat_columns=limits.XSPACE_STAT_COLUMNS_MAX,
                )
                at = found["next"]
                self._count(found)
                if len(found["start"]):
                    yield self._batch(found, plane, stats, line, track)
            wire.let_go(line_span)
        record = plane.record()
        if keys := stats.keys():
            record["stat_keys"] = keys
        if stats.correlation_type:
            record["correlation_type"] = stats.correlation_type
        if self._session_ns:
            record["base_ns"] = self._session_ns
        track.keep(record)

    def _track(self, plane: Plane) -> PlaneTrack:
        if len(self.tracks.processes) >= limits.TRACKS_MAX:
            raise Exhausted(f"The XSpace has more than {limits.TRACKS_MAX} planes.")
        identity: Any = self._pid if plane.name == "/host:CPU" and self._pid is not None else plane.name
        session = [self._hostname, self._pid or 0]
        wanted = identity
        # From the last one of that name on: to ask after all of them would take a file of equal names forever.
        number = self._namesakes.get(str(wanted), 1)
        if number > 1:
            identity = f"{wanted}#{number}"
        while (known := self._identities.get(str(identity))) is not None:
            process = self.tracks.processes[known]
            if known < self._first_process and known not in self._continued and process.get("session") == session:
                self._continued.add(known)
                self._namesakes[str(wanted)] = number
                return PlaneTrack(self.tracks, known, plane)
            number += 1
            identity = f"{wanted}#{number}"
        self._namesakes[str(wanted)] = number
        if number > 1:
            self.findings.count("duplicate_plane")
        self._identities[str(identity)] = len(self.tracks.processes)
        self.tracks.processes.append({"id": identity, "name": plane.name, "session": session, "xspace": {}})
        return PlaneTrack(self.tracks, len(self.tracks.processes) - 1, plane)

    def _line(self, wire: Wire, span: Span, plane: Plane, track: PlaneTrack) -> _Line:
        fields: dict[str, Any] = {"id": 0, "name": ""}
        for number, value in wire.fields(span, *_LINE_FIELDS, *_LINE_TEXTS):
            if isinstance(value, Span):
                if number in _LINE_TEXTS:
                    fields[_LINE_TEXTS[number]] = wire.text(value)
            elif number in _LINE_FIELDS:
                fields[_LINE_FIELDS[number]] = value
        record = {key: value for key, value in fields.items() if key not in ("id", "name") and value}
        base = int(fields.get("timestamp_ns", 0))
        # Relative times are of the session's length, Unix times of decades.
        if abs(base) < self._session_ns // 2:
            record["relative"] = True
            base += self._session_ns
        base = max(-_NS_MAX, min(base, _NS_MAX))
        if fields.get("display_name"):
            record["name"] = fields["name"]
        thread = track.thread(fields["id"], fields.get("display_name") or fields["name"], record)
        place = kinds.place_of(plane.name)
        derived = kinds.is_derived(fields["id"], fields["name"], place)
        kind = kinds.line_kind(fields["name"], place, derived)
        return _Line(fields, base, thread, place, kind)

    def _batch(self, found: dict[str, Any], plane: Plane, stats: PlaneStats, line: _Line, track: PlaneTrack) -> Batch:
        size = len(found["start"])
        args, more = stats.columns(found)
        columns: dict[str, Any] = {
            "name": np.empty(0),
            "kind": np.empty(0),
            "phase": np.full(size, ord("X"), dtype=np.uint8),
            "start": found["start"],
            "end": found["end"],
            "process": np.full(size, track.number, dtype=np.int32),
            "thread": np.full(size, line.thread, dtype=np.int32),
            "device_type": np.full(size, line.place.device_type, dtype=np.uint8),
        }
        if found["start_ps"] is not None:
            columns |= {"start_ps": found["start_ps"], "end_ps": found["end_ps"]}
        columns["name"], columns["kind"] = self._name(args, found, plane, line, track)
        _refine(columns["kind"], more.rows)
        if len(aggregates := found["aggregates"]):
            if line.kind is None:
                # An aggregate is nothing that others nest in.
                columns["kind"][aggregates] = Kind.TRACE
            self._arguments.column(args, "@num_occurrences", aggregates, found["occurrences"])
        if line.place.device is not None:
            columns["device"] = np.full(size, line.place.device, dtype=np.int64)
            stream = line.fields["id"] if line.kind is None else NO_END
            columns["stream"] = np.full(size, stream, dtype=np.int64)
        if more.correlation is not None:
            at, values = more.correlation
            columns["correlation"] = values
            if len(at) < size:
                columns["correlation"] = np.full(size, NO_END)
                columns["correlation"][at] = values
        return Batch(EventTable(columns, self.dictionaries, args))

    def _count(self, found: dict[str, Any]) -> None:
        for reason, number in found["lost"].items():
            self.findings.lose(reason, number)
        self.findings.count("end_before_start", found["end_before_start"])

    def _name(
        self,
        args: dict[tuple[str, str], ArgColumn],
        found: dict[str, Any],
        plane: Plane,
        line: _Line,
        track: PlaneTrack,
    ) -> tuple[Array, Array]:
        """(name codes, kinds), by the distinct metadata of the slice."""
        place, numbers = found["metadata"], found["metadata_ids"]
        plane.used_events.update(numbers)
        known = np.array([number in plane.events for number in numbers], dtype=np.bool_)
        pairs = [plane.events.get(number, (f"#{number}", "")) for number in numbers]
        if not known.all():
            self.findings.count("missing_metadata", int(np.count_nonzero(~known[place])))
        codes = np.array(self._names.codes([name for name, _ in pairs]), dtype=np.int32)
        kind = [line.kind if line.kind is not None else kinds.event_kind(name, line.place) for name, _ in pairs]
        unclear = ~known | np.array([number in plane.kept_ids for number in numbers], dtype=np.bool_)
        if unclear.any():
            at = np.flatnonzero(unclear[place])
            kept = np.array([track.numbers.get(number, number) for number in numbers], dtype=np.int64)
            self._arguments.column(args, "@metadata_id", at, kept[place[at]])
        shown = np.array([bool(display) for _, display in pairs], dtype=np.bool_)
        if shown.any():
            at = np.flatnonzero(shown[place])
            self._arguments.texts(args, "@display_name", at, ([display for _, display in pairs], place[at]))
        return codes[place], np.array(kind, dtype=np.uint8)[place]


def _refine(kind: Array, rows: dict[str, Array]) -> None:
    """Kinds that a stat tells better than the name."""
    for stat, (before, after) in kinds.BY_STAT.items():
        if stat in rows:
            at = rows[stat]
            if len(at) == len(kind):  # all of a line, as mostly
                kind[kind == before] = after
            else:
                kind[at[kind[at] == before]] = after
