"""nvprof's SQLite databases to EventTable batches. The raw format `nvprof`.

Markers (NVTX ranges; torch.autograd.profiler.emit_nvtx writes one per op) become
ops on their thread, as in torch's load_nvprof, so that tables give them the time of
their kernels; runtime and driver calls, kernels, copies and fills are what they are.
Launches and what they launched share a correlation id, so the tree finds
op -> launch -> kernel where the reference joins by containment in time. A range
whose start or end is missing, a number twice, a string that is not there: all of
them are counted, none of them fails the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from profd import limits
from profd.decode import nvprof_rows as nv
from profd.decode.batch import Batch, Decoder
from profd.decode.nvprof_tracks import NvprofTracks
from profd.decode.sqlite_file import Damaged, SqliteFile
from profd.errors import BadTrace, Exhausted
from profd.events import COLUMNS, NO_END, NO_ROW, ArgColumn, DeviceType, Dictionary, EventTable, Kind, Tracks
from profd.events.distinct import distinct
from profd.events.table import Array

_MARKER: Final = nv.PREFIX + "MARKER"
_NAME: Final = nv.PREFIX + "NAME"
_DEVICE: Final = nv.PREFIX + "DEVICE"
_STRING_OVERHEAD: Final = 100  # bytes that Python needs for one
# Read for what they say of others, or of no use beside the events.
_NO_EVENTS: Final = {_NAME, _DEVICE, nv.PREFIX + "CONTEXT", nv.PREFIX + "STREAM", nv.PREFIX + "MARKER_DATA"}


class NvprofDecoder(Decoder):
    """Decodes one database.

    Needs as much disk in `scratch` (default: the temporary directory) as the file has bytes, while it reads.
    Memory: the strings, the open ranges and 16384 rows.
    """

    def __init__(
        self,
        file: BinaryIO,
        size: int,
        dictionaries: dict[str, Dictionary] | None = None,
        tracks: Tracks | None = None,
        scratch: Path | None = None,
    ) -> None:
        super().__init__(file, dictionaries, tracks)
        for name in ("name", "cat"):
            self.dictionaries.setdefault(name, Dictionary())
        self._size, self._scratch = size, scratch
        self._places = NvprofTracks(self.tracks)
        self._strings: dict[int, str] = {}
        self._made: dict[Any, int] = {}  # what a name is made of -> its code
        self._text_bytes = 0
        self._grids = {"grid": Dictionary(), "block": Dictionary()}

    def batches(self) -> Generator[Batch]:
        """Yield batches table by table. Raises BadTrace if it is no database of nvprof."""
        with contextlib.closing(SqliteFile(self._file, self._scratch)) as database:
            self._check(database)
            if database.cut_off:
                self.findings.truncated = "the database is cut off; the rows that are there are kept"
                self.findings.lose("truncated")
            self._read_strings(database)
            parts = [self._markers(database), self._overheads(database)]
            parts += [self._activity(database, activity) for activity in nv.ACTIVITIES]
            for number, part in enumerate(parts):
                yield from part
                self._file.seek(self._size * (number + 1) // len(parts))  # what progress is told by
            self._read_names(database)
            self._name_unread(database)

    def _check(self, database: SqliteFile) -> None:
        known = {_MARKER, nv.OVERHEAD.table, *(activity.table for activity in nv.ACTIVITIES)}
        if known.isdisjoint(database.tables):
            hint = " (one of Nsight Systems: import what `nsys export -t json` writes)" * (
                "StringIds" in database.tables
            )
            raise BadTrace(f"the SQLite file has no table of nvprof{hint}; profd imports what `nvprof -o` writes", 0)

    def _rows(
        self, database: SqliteFile, table: str, needed: tuple[str, ...], wanted: tuple[str, ...] = ()
    ) -> Iterator[tuple[tuple[str, ...], list[tuple[Any, ...]]]]:
        """(columns, rows) of a table; none where it is missing, and as many as can be read."""
        have = database.tables.get(table)
        if have is None:
            return
        missing = [name for name in needed if name not in have]
        if missing:
            self._damaged(table, f"it has no column {missing[0]!r}")
            return
        columns = (*needed, *(name for name in wanted if name in have))
        try:
            for rows in database.rows(table, columns):
                yield columns, rows
        except Damaged as error:
            self._damaged(table, str(error))

    def _damaged(self, table: str, why: str) -> None:
        """An unknown number of rows is lost, which counts as one."""
        self.findings.lose("unreadable_table")
        self.findings.warnings.append(f"Table {table} could not be read to its end: {why}.")
        if not self.findings.truncated:
            self.findings.truncated = f"table {table} could not be read to its end; the rows before are kept"

    def _read_strings(self, database: SqliteFile) -> None:
        for _, rows in self._rows(database, nv.STRINGS, ("_id_", "value")):
            for number, value in rows:
                if type(number) is not int or not isinstance(value, bytes) or len(value) > limits.STRING_BYTES_MAX:
                    self.findings.count("bad_string")
                    continue
                self._strings[number] = value.decode("utf-8", "replace")
                self._spend(len(value))

    def _spend(self, size: int) -> None:
        self._text_bytes += size + _STRING_OVERHEAD
        if self._text_bytes > limits.DICTIONARY_BYTES_MAX:
            raise Exhausted(
                f"The strings of the database exceed {limits.DICTIONARY_BYTES_MAX >> 20} MiB, the limit of a trace."
            )

    def _string(self, number: int) -> str:
        value = self._strings.get(number)
        if value is None:
            self.findings.count("missing_string")
            return f"string {number}"
        return value

    def _code(self, key: Any, text: str) -> int:
        code = self._made.get(key)
        if code is None:
            code = self._made[key] = self.dictionaries["name"].code(text)
            self._spend(len(text))
        return code

    # Markers: two rows with one number, in the order in which they were written.

    def _markers(self, database: SqliteFile) -> Iterator[Batch]:
        open_ranges: dict[int, tuple[int, int, int]] = {}  # number -> (start, name, thread)
        needed, wanted = ("timestamp", "id", "name"), ("flags", "objectKind", "objectId")
        for columns, rows in self._rows(database, _MARKER, needed, wanted):
            at = {name: place for place, name in enumerate(columns)}
            found: list[tuple[int, int, int, int, int]] = []  # start, end, name, thread, kind
            for row in rows:
                time, number, name = row[:3]
                if not (type(time) is int and type(number) is int and type(name) is int and time > 0):
                    self.findings.lose("bad_row")
                    continue
                if name == 0:
                    self._end_range(open_ranges, number, time, found)
                    continue
                code = self._code(name, self._string(name))
                thread = self._marked(row, at)
                if at.get("flags") and type(row[at["flags"]]) is int and row[at["flags"]] & nv.MARKER_INSTANT:
                    found.append((time, time, code, thread, Kind.INSTANT))
                else:
                    self._start_range(open_ranges, number, (time, code, thread), found)
            yield from self._marker_batch(found)
        self.findings.count("without_end", len(open_ranges))
        rest = [(start, NO_END, code, thread, int(Kind.CPU_OP)) for start, code, thread in open_ranges.values()]
        yield from self._marker_batch(rest)

    def _start_range(
        self, open_ranges: dict[int, Any], number: int, begun: tuple[int, int, int], found: list[Any]
    ) -> None:
        before = open_ranges.pop(number, None)
        if before is not None:  # the reference fails on a number that comes twice
            self.findings.count("duplicate_marker")
            found.append((before[0], NO_END, *before[1:], Kind.CPU_OP))
        if len(open_ranges) >= limits.OPEN_EVENTS_MAX:
            self.findings.count("too_many_open")
            found.append((begun[0], NO_END, *begun[1:], Kind.CPU_OP))
        else:
            open_ranges[number] = begun

    def _end_range(self, open_ranges: dict[int, Any], number: int, time: int, found: list[Any]) -> None:
        begun = open_ranges.pop(number, None)
        if begun is None:
            self.findings.lose("unmatched_end")
            return
        start, code, thread = begun
        self.findings.count("end_before_start", int(time < start))
        found.append((start, max(start, time), code, thread, Kind.CPU_OP))

    def _marked(self, row: tuple[Any, ...], at: dict[str, int]) -> int:
        """The thread track that a marker is on. Without a known object it is on a track of its own."""
        place = at.get("objectId")
        ids = nv.object_ids(row[place]) if place is not None else None
        kind = row[at["objectKind"]] if "objectKind" in at else nv.OBJECT_THREAD
        if ids is None or kind not in (nv.OBJECT_PROCESS, nv.OBJECT_THREAD):
            self.findings.count("marker_without_thread")
            return self._places.thread(0, 0)
        return self._places.thread(ids[0], ids[1] if kind == nv.OBJECT_THREAD else 0)

    def _marker_batch(self, found: list[tuple[int, int, int, int, int]]) -> Iterator[Batch]:
        if not found:
            return
        rows = np.array(found, dtype=np.int64)
        last = np.where(rows[:, 1] == NO_END, np.iinfo(np.int64).max, rows[:, 1])
        # They came as they ended; of rows that start together the first is taken to be the outer one.
        start, end, name, thread, kind = rows[np.lexsort((-last, rows[:, 0]))].T
        category = self.dictionaries["cat"].code("cpu_op")
        yield self._batch(start, end, name, kind, category, DeviceType.CPU, thread, {})

    # Rows with a start and an end

    def _overheads(self, database: SqliteFile) -> Iterator[Batch]:
        activity = nv.OVERHEAD
        for columns, rows in self._rows(database, activity.table, activity.needed, ("objectKind", "objectId")):
            at = {name: place for place, name in enumerate(columns)}
            whole = [row for row in rows if all(type(value) is int for value in row[: len(activity.needed)])]
            self.findings.lose("bad_row", len(rows) - len(whole))
            found = self._timed(
                nv.to_columns(
                    [(*row[:3], self._marked(row, at)) for row in whole], (*activity.needed, "thread"), activity.needed
                )
            )
            if found.count:
                names = self._named(("overhead",), nv.overhead_name, found.of("overheadKind"))
                yield self._of(activity, found, names, found.of("thread"), {})

    def _activity(self, database: SqliteFile, activity: nv.Activity) -> Iterator[Batch]:
        for columns, rows in self._rows(database, activity.table, activity.needed, activity.wanted):
            found = nv.to_columns(rows, columns, activity.needed)
            self.findings.lose("bad_row", found.lost)
            found = self._timed(found)
            if not found.count:
                continue
            if activity.on_device:
                thread = self._places.streams(found.of("deviceId"), found.of("streamId"))
            else:
                thread = self._places.threads(found.of("processId"), found.of("threadId"))
            bad = thread == NO_ROW
            self.findings.lose("bad_id", int(bad.sum()))
            if bad.any():
                found, thread = found.keep(~bad), thread[~bad]
            if found.count:
                yield self._of(activity, found, self._names(activity, found), thread, self._args(activity, found))

    def _timed(self, found: nv.Columns) -> nv.Columns:
        """Without the rows that CUPTI has no time for: it writes 0."""
        bad = found.of("start") <= 0
        self.findings.lose("bad_time", int(bad.sum()))
        return found.keep(~bad) if bad.any() else found

    def _names(self, activity: nv.Activity, found: nv.Columns) -> Array:
        kind = activity.kind
        if kind == Kind.KERNEL:
            return self._named((), self._string, found.of("name"))
        if kind == Kind.MEMCPY:
            return self._named(("copy",), nv.copy_name, found.of("copyKind"), found.of("srcKind"), found.of("dstKind"))
        if kind == Kind.MEMSET:
            return self._named(("set",), nv.set_name, found.of("memoryKind"))
        return self._named((kind,), lambda cbid: nv.call_name(kind, cbid), found.of("cbid"))

    def _named(self, of: tuple[Any, ...], make: Any, *columns: Array) -> Array:
        """Codes of the names that `make` gives to the values of each row; asked once for each combination."""
        first, which = distinct(*columns)
        codes = []
        for values in zip(*(column[first].tolist() for column in columns), strict=True):
            key = (*of, *values) if of else values[0]
            codes.append(self._made[key] if key in self._made else self._code(key, make(*values)))
        return np.array(codes, dtype=np.int32)[which]

    def _of(
        self,
        activity: nv.Activity,
        found: nv.Columns,
        names: Array,
        thread: Array,
        args: dict[tuple[str, str], ArgColumn],
    ) -> Batch:
        start, end = found.of("start"), found.of("end")
        known = end > 0
        early = known & (end < start)
        self.findings.count("end_before_start", int(early.sum()))
        self.findings.count("without_end", int((~known).sum()))
        end = np.where(known, np.maximum(start, end), NO_END)
        category = self.dictionaries["cat"].code(activity.category)
        batch = self._batch(start, end, names, activity.kind, category, activity.device_type, thread, args)
        own = found.of("correlationId")
        runtime = found.of("runtimeCorrelationId")  # of copies: which runtime call it was, if one
        correlation = np.where((runtime != NO_END) & (runtime != 0), runtime, own)
        columns = batch.events.columns
        columns["correlation"] = np.where(correlation == 0, NO_END, correlation)
        if activity.on_device:
            columns["device"], columns["context"] = found.of("deviceId"), found.of("contextId")
            columns["stream"], columns["bytes"] = found.of("streamId"), found.of("bytes")
        return batch

    def _args(self, activity: nv.Activity, found: nv.Columns) -> dict[tuple[str, str], ArgColumn]:
        args: dict[tuple[str, str], ArgColumn] = {}

        def add(key: str, values: Array) -> None:
            rows = np.flatnonzero(values != NO_END)
            if len(rows):
                args[key, "int"] = ArgColumn("int", rows, values[rows])

        if activity.kind == Kind.KERNEL:
            for what, dictionary in self._grids.items():
                axes = np.stack([found.of(f"{what}{axis}") for axis in "XYZ"])
                rows = np.flatnonzero((axes != NO_END).all(axis=0))
                if len(rows):
                    first, which = distinct(*axes[:, rows])
                    known = len(dictionary)
                    shapes = axes[:, rows[first]].T.tolist()
                    codes = np.array(dictionary.codes([str(shape) for shape in shapes]), dtype=np.int32)
                    self._spend(_STRING_OVERHEAD * (len(dictionary) - known))
                    args[what, "json"] = ArgColumn("json", rows, codes[which], dictionary)
            static, dynamic = found.of("staticSharedMemory"), found.of("dynamicSharedMemory")
            both = (np.minimum(static, dynamic) >= 0) & (np.maximum(static, dynamic) < 1 << 62)
            add("shared memory", np.where(both, static + dynamic, NO_END))
            add("registers per thread", found.of("registersPerThread"))
        for key in ("returnValue", "value"):
            if key in activity.wanted:
                add(key, found.of(key))
        return args

    def _batch(
        self,
        start: Array,
        end: Array,
        name: Array,
        kind: Any,
        category: int,
        device_type: DeviceType,
        thread: Array,
        args: dict[tuple[str, str], ArgColumn],
    ) -> Batch:
        values = {
            "name": name,
            "kind": kind,
            "cat": category,
            "start": start,
            "end": end,
            "process": self._places.process_of(thread),
            "thread": thread,
            "device_type": device_type,
        }
        columns = {key: np.full(len(start), value, dtype=COLUMNS[key].dtype) for key, value in values.items()}
        return Batch(EventTable(columns, self.dictionaries, args))

    # What stands beside the events

    def _read_names(self, database: SqliteFile) -> None:
        for _, rows in self._rows(database, _NAME, ("objectKind", "objectId", "name")):
            for kind, blob, name in rows:
                ids = nv.object_ids(blob)
                if ids is None or type(name) is not int or name not in self._strings:
                    continue
                if kind == nv.OBJECT_PROCESS:
                    self._places.name_process(ids[0], self._strings[name])
                elif kind == nv.OBJECT_THREAD:
                    self._places.name_thread(*ids, self._strings[name])
        for _, rows in self._rows(database, _DEVICE, ("id", "name")):
            for number, name in rows:
                if type(number) is int and type(name) is int and name in self._strings:
                    self._places.name_device(number, self._strings[name])

    def _name_unread(self, database: SqliteFile) -> None:
        """Say which tables with rows in them are not imported."""
        known = {_MARKER, nv.OVERHEAD.table, *_NO_EVENTS, *(activity.table for activity in nv.ACTIVITIES)}
        others = []
        for table, columns in database.tables.items():
            if table.startswith(nv.PREFIX) and table not in known and columns:
                with contextlib.suppress(Damaged):
                    others += [table.removeprefix(nv.PREFIX)] * (
                        next(database.rows(table, columns[:1]), None) is not None
                    )
        if others:
            self.findings.warnings.append(f"Not imported, as profd has no use for them: {', '.join(sorted(others))}.")
