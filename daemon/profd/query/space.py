"""A stored XSpace as the derivation of lines reads it; see profd.derive.timeline.space."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from profd.decode.xspace_kinds import is_derived, place_of
from profd.derive.timeline.space import MISSING, NO_TEXT, NUMBERS, TEXTS, Line, Space
from profd.derive.timeline.symbols import Symbols
from profd.errors import BadInput
from profd.events import NO_END, ArgColumn, DeviceType, Dictionary, EventTable, Kind
from profd.events.table import Array
from profd.query.whole import check_size
from profd.segments.reader import TraceReader

_COLUMNS: Final = ("name", "kind", "start", "end", "start_ps", "end_ps", "thread", "correlation")
_METADATA: Final = "@metadata_id"
_IN_METADATA: Final = ("tf_op", "source")
_PROGRAMS: Final = "/host:metadata"
_HLO_PROTO: Final = "Hlo Proto"
_SCOPE_TREE: Final = "/host:__ScopeRangeCallStack__"
_NS_MAX: Final = (1 << 62) // 1000  # from the start of the trace: picoseconds stay within 64 bits


def is_xspace(reader: TraceReader) -> bool:
    """Whether a trace came as an XSpace."""
    return any(isinstance(process.get("xspace"), dict) for process in reader.tracks.processes)


def derived_lines(reader: TraceReader) -> dict[int, tuple[str, str]]:
    """Lines that a viewer has derived from others: track number -> plane, name."""
    found = {}
    for number, thread in enumerate(reader.tracks.threads):
        process = reader.tracks.processes[thread["process"]]
        plane, name = str(process.get("name") or process["id"]), str(thread.get("name") or "")
        if is_derived(_number(thread["id"]), name, place_of(plane)):
            found[number] = (plane, name)
    return found


def read_space(reader: TraceReader) -> Space:
    """The events but those of derived lines and aggregates; picoseconds from the start of the trace.

    BadInput if the trace is no XSpace, Exhausted if it is too large for a worker.
    """
    if not is_xspace(reader):
        raise BadInput(
            "Derived lines are for XSpace traces (JAX, TensorFlow), and this trace is none. "
            "For traces of PyTorch see `profctl steps` and `profctl top --group-by module`."
        )
    check_size(len(reader), "capture a shorter window")
    return _Reading(reader).space()


class _Reading:
    def __init__(self, reader: TraceReader) -> None:
        self._reader = reader
        self._zero = reader.meta.start_ns or 0
        self._words = Dictionary()
        self._parts: dict[str, list[Array]] = {}
        processes = reader.tracks.processes
        self._planes = [str(process.get("name") or process["id"]) for process in processes]
        self._lines = [
            Line(thread["process"], _number(thread["id"]), str(thread.get("name") or ""))
            for thread in reader.tracks.threads
        ]
        self._derived = np.zeros(len(self._lines) + 1, dtype=np.bool_)
        self._metadata = self._told_by_metadata()
        self._derived[[*derived_lines(reader), -1]] = True  # the last answers for rows without a line

    def space(self) -> Space:
        keys = {_METADATA} | {name for wanted in (*NUMBERS, *TEXTS) for name in spellings(wanted)}
        for table in self._reader.iterate(_COLUMNS, args=keys):
            self._add(table)
        parts = {
            key: np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)
            for key, arrays in self._parts.items()
        }
        empty = np.empty(0, dtype=np.int64)
        line, own = parts.get("line", empty), [number for number, out in enumerate(self._derived[:-1]) if not out]
        place = np.full(len(self._lines), -1, dtype=np.int64)
        place[own] = np.arange(len(own))
        fixed = {key: parts.pop(key, empty) for key in ("start", "end", "line", "name", "correlation")}
        return Space(
            planes=self._planes,
            lines=[self._lines[number] for number in own],
            start=fixed["start"],
            end=fixed["end"],
            line=place[line],
            name=fixed["name"],
            correlation=fixed["correlation"],
            numbers={key: parts[key] for key in NUMBERS if key in parts},
            texts={key: parts[key] for key in TEXTS if key in parts},
            words=self._words.values,
            scope_parents=_scope_parents(self._reader.tracks.processes),
            symbols=Symbols(_programs(self._reader.tracks.processes)),
        )

    def _add(self, table: EventTable) -> None:
        start, end = table.columns["start"], table.column("end")
        thread = table.column("thread")
        since, until = start - self._zero, np.where(end == NO_END, start, end) - self._zero
        kept = ~self._derived[thread] & (table.column("kind") != Kind.TRACE)
        kept &= (np.abs(since) < _NS_MAX) & (np.abs(until) < _NS_MAX)
        rows = np.flatnonzero(kept)
        from_ps = since[rows] * 1000 + table.column("start_ps")[rows]
        to_ps = until[rows] * 1000 + table.column("end_ps")[rows]
        correlation = table.column("correlation")[rows].astype(np.int64)
        found = {
            "start": from_ps,
            "end": np.maximum(from_ps, to_ps),
            "line": thread[rows].astype(np.int64),
            "name": self._renamed(table, rows),
            "correlation": np.where(correlation == NO_END, MISSING, correlation),
        }
        for key in NUMBERS:
            found[key] = numbers_of(table, key)[rows]
        for key in TEXTS:
            found[key] = self._texts(table, key)[rows]
        for key in _IN_METADATA:
            found[key] = self._with_metadata(table, key, found[key], rows)
        for key, values in found.items():
            self._parts.setdefault(key, []).append(values)

    def _with_metadata(self, table: EventTable, key: str, given: Array, rows: Array) -> Array:
        """Operators and sources of TPUs: the metadata of events tells once what all events of an op share."""
        arg = table.args.get((_METADATA, "int"))
        if arg is None or key not in self._metadata:
            return given
        numbers = np.full(len(table), MISSING, dtype=np.int64)
        numbers[arg.rows] = arg.values
        found, number, line = given.copy(), numbers[rows], table.column("thread")[rows]
        planes = np.array([one.plane for one in self._lines], dtype=np.int64)[line]
        for plane, known in self._metadata[key].items():
            own = np.flatnonzero((planes == plane) & (number != MISSING) & (found == NO_TEXT))
            distinct, place = np.unique(number[own], return_inverse=True)
            codes = [known.get(one, NO_TEXT) for one in distinct.tolist()]
            found[own] = np.array(codes, dtype=np.int64)[place]
        return found

    def _told_by_metadata(self) -> dict[str, dict[int, dict[int, int]]]:
        """Stat -> plane -> number of metadata -> which of the words it is."""
        stats: dict[str, dict[int, dict[int, int]]] = {}
        for plane, process in enumerate(self._reader.tracks.processes):
            record = process.get("xspace")
            if place_of(self._planes[plane]).device_type != DeviceType.TPU or not isinstance(record, dict):
                continue
            for entry in record.get("event_metadata", ()):
                for name, kind, value in entry.get("stats", ()):
                    if name in _IN_METADATA and kind in ("str", "ref") and value:
                        stats.setdefault(name, {}).setdefault(plane, {})[entry["id"]] = self._words.code(value)
        return stats

    def _renamed(self, table: EventTable, rows: Array) -> Array:
        codes = self._words.codes(table.dictionaries["name"].values)
        again = np.array([*codes, self._words.code("")], dtype=np.int64)  # the last answers for rows without a name
        found: Array = again[table.column("name")[rows]]
        return found

    def _texts(self, table: EventTable, key: str) -> Array:
        found = np.full(len(table), NO_TEXT, dtype=np.int64)
        for arg in _args(table, key, "str"):
            codes = [self._words.code(word) if word else NO_TEXT for word in _values(arg)]
            found[arg.rows] = np.array(codes, dtype=np.int64)[arg.values]
        return found


def spellings(key: str) -> Iterable[str]:
    """The names under which a stat is stored: one with its type where the trace has it with two."""
    return (key, *(f"{key}:{kind}" for kind in ("int64", "uint64", "str", "ref")))


def _args(table: EventTable, key: str, kind: str) -> Iterable[ArgColumn]:
    return (table.args[name, kind] for name in spellings(key) if (name, kind) in table.args)


def numbers_of(table: EventTable, key: str) -> Array:
    """An integer stat of all rows, MISSING where they have none."""
    found = np.full(len(table), MISSING, dtype=np.int64)
    for arg in _args(table, key, "int"):
        found[arg.rows] = arg.values
    for arg in _args(table, key, "json"):
        found[arg.rows] = np.array([_number(text) for text in _values(arg)], dtype=np.int64)[arg.values]
    return found


def _values(arg: ArgColumn) -> list[str]:
    return [] if arg.dictionary is None else arg.dictionary.values


def _number(value: Any) -> int:
    """As a signed integer of 64 bits; MISSING for what is no integer."""
    try:
        number = int(value) & (1 << 64) - 1
    except (TypeError, ValueError):
        return MISSING
    return number - (1 << 64) if number >> 63 else number


def _scope_parents(processes: list[dict[str, Any]]) -> dict[int, int]:
    """Child to parent. The number of the stat is the child's, which the decoder calls `#number` as it has no name."""
    parents: dict[int, int] = {}
    for process in processes:
        if process.get("name") != _SCOPE_TREE or not isinstance(process.get("xspace"), dict):
            continue
        for name, _, parent in process["xspace"].get("stats", ()):
            child = _number(str(name).removeprefix("#"))
            if child != MISSING and isinstance(parent, int):
                parents[child] = parent
    return parents


def _programs(processes: list[dict[str, Any]]) -> dict[int, bytes]:
    """Number of a program -> its HLO proto, from the metadata of events; by its own number where it tells no other."""
    programs: dict[int, bytes] = {}
    for process in processes:
        if process.get("name") != _PROGRAMS or not isinstance(process.get("xspace"), dict):
            continue
        for entry in process["xspace"].get("event_metadata", ()):
            stats = {name: (kind, value) for name, kind, value in entry.get("stats", ())}
            kind, content = stats.get(_HLO_PROTO, ("", None))
            number = _number(stats.get("program_id", ("", entry["id"]))[1])
            if kind == "bytes" and number != MISSING:
                programs.setdefault(number, base64.b64decode(content))
    return programs
