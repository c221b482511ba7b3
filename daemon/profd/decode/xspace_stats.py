"""Stats of events to argument columns.

An argument is named as the stat is. Where a name comes with two types that would share a column
("uint64" and "int64"; "str", "bytes" and "ref"), later ones are `name:type`; a second value of the
same stat in one event is `name#2`. Names that begin with '@' get one more (profd.decode.chrome).
Bytes are in base64; integers above 63 bits are JSON texts.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from profd import limits
from profd.decode.batch import Findings
from profd.decode.xspace_plane import STAT_TYPES, Plane
from profd.decode.xspace_wire import decoded
from profd.errors import Exhausted
from profd.events import ArgColumn, Dictionary
from profd.events.table import Array

CORRELATION: Final = "correlation_id"
DEFAULT_TYPES: Final = {"int": "int64", "float": "double", "str": "str", "json": "uint64"}
_INTEGERS: Final = ("uint64", "int64")
_REPEATS_MAX: Final = 8  # values of one stat in one event that are kept


@dataclass(frozen=True, slots=True)
class _Group:
    """The values of one stat with one type, by row. `words`: of texts, what the values are places in."""

    name: str
    type: str
    rows: Array
    values: Array
    words: list[str]
    repeats: bool  # a row has several

    def part(self, which: Array, repeats: bool) -> _Group:
        """Some of them."""
        return replace(self, rows=self.rows[which], values=self.values[which], repeats=repeats)


@dataclass(slots=True)
class StatsFound:
    """Findings in stats beside their columns: the rows that have a stat, by its name, and (rows, correlation ids)."""

    rows: dict[str, Array] = field(default_factory=dict)
    correlation: tuple[Array, Array] | None = None


class Arguments:
    """Argument columns of a trace; their dictionaries are shared by all batches."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._dictionaries: dict[tuple[str, str], Dictionary] = {}
        self._bytes = 0

    def column(self, columns: dict[tuple[str, str], ArgColumn], key: str, rows: Array, values: Array) -> None:
        """Add integers."""
        if self._known(key, "int"):
            columns[key, "int"] = ArgColumn("int", rows, values)

    def texts(
        self,
        columns: dict[tuple[str, str], ArgColumn],
        key: str,
        rows: Array,
        texts: tuple[list[str], Array],
        kind: str = "str",
    ) -> None:
        """Add a text for each row: (distinct texts, which of them)."""
        if self._known(key, kind):
            distinct, place = texts
            dictionary = self._dictionaries[key, kind]
            before = len(dictionary)
            codes = np.array(dictionary.codes(distinct), dtype=np.int32)
            self._bytes += sum(map(len, dictionary.values[before:]))
            if self._bytes > limits.DICTIONARY_BYTES_MAX:
                raise Exhausted(f"The texts of the XSpace exceed {limits.DICTIONARY_BYTES_MAX >> 20} MiB.")
            columns[key, kind] = ArgColumn(kind, rows, codes[place], dictionary)

    def floats(self, columns: dict[tuple[str, str], ArgColumn], key: str, rows: Array, values: Array) -> None:
        """Add numbers."""
        if self._known(key, "float"):
            columns[key, "float"] = ArgColumn("float", rows, values)

    def _known(self, key: str, kind: str) -> bool:
        if (key, kind) in self._dictionaries:
            return True
        if len(self._dictionaries) >= limits.ARG_KEYS_MAX:
            self._findings.lose("too_many_stat_names")
            return False
        self._dictionaries[key, kind] = Dictionary()
        return True


class PlaneStats:
    """Turns the stats of a plane's events into columns, and remembers which column is which stat.

    `record`: what the track keeps of earlier files, whose columns keep their names.
    """

    def __init__(self, plane: Plane, arguments: Arguments, findings: Findings, record: dict[str, Any]) -> None:
        self._plane = plane
        self._arguments = arguments
        self._findings = findings
        self._keys: dict[tuple[str, str, int, str], str] = {}  # name, type, occurrence, argument's type -> its key
        self._taken: set[tuple[str, str]] = set()
        self.correlation_type: str = record.get("correlation_type", "")
        for key, kind, name, stat_type in record.get("stat_keys", ()):
            occurrence = 0
            while (name, stat_type, occurrence, kind) in self._keys:
                occurrence += 1
            self._keys[name, stat_type, occurrence, kind] = key
            self._taken.add((key, kind))

    def keys(self) -> list[list[str]]:
        """[argument key, its type, name, type] for each that is used."""
        return [[key, kind, name, stat_type] for (name, stat_type, _, kind), key in self._keys.items()]

    def columns(self, slice_: dict[str, Any]) -> tuple[dict[tuple[str, str], ArgColumn], StatsFound]:
        """The arguments of a slice (`profd._scan.xspace_events`), and what else its stats say."""
        args: dict[tuple[str, str], ArgColumn] = {}
        found = StatsFound()
        for group in self._groups(slice_):
            found.rows.setdefault(group.name, group.rows)
            rest = group
            if group.name == CORRELATION and group.type in _INTEGERS:
                taken, rest = self._correlation(group, found.correlation is not None)
                found.correlation = taken or found.correlation
            for occurrence, part in enumerate(self._occurrences(rest)):
                self._add(args, part, occurrence)
        return args, found

    def _groups(self, slice_: dict[str, Any]) -> list[_Group]:
        groups: dict[tuple[str, str], _Group] = {}
        everywhere: Array | None = None  # one array for all stats that every event has
        for number, type_, rows, values, distinct, repeats in sorted(slice_["stats"], key=lambda stat: stat[:2]):
            kind, name = STAT_TYPES[type_], self._plane.stat_name(number)
            words = self._words(kind, distinct, slice_["texts"]) if distinct is not None else []
            own = rows
            if len(rows) == len(slice_["start"]) and not repeats:
                own = everywhere = rows if everywhere is None else everywhere
            group = _Group(name, kind, own, values, words, repeats)
            groups[name, kind] = _merged(groups[name, kind], group) if (name, kind) in groups else group
        return list(groups.values())

    def _correlation(self, group: _Group, already: bool) -> tuple[tuple[Array, Array] | None, _Group]:
        """Values for the column `correlation`: the first of each event, of the first type that was met."""
        if already or group.type != (self.correlation_type or group.type):
            return None, group
        self.correlation_type = group.type
        first = group.values >= 0
        if group.repeats:
            first &= _first_of_each(group.rows)
        if first.all():
            return (group.rows, group.values), group.part(np.empty(0, dtype=np.intp), repeats=False)
        return (group.rows[first], group.values[first]), group.part(~first, group.repeats)

    def _add(self, args: dict[tuple[str, str], ArgColumn], group: _Group, occurrence: int) -> None:
        if group.type == "uint64" and (large := group.values < 0).any():
            key = self._key(group, occurrence, "json")
            numbers = [str(value) for value in group.values[large].view(np.uint64).tolist()]
            self._arguments.texts(args, key, group.rows[large], (numbers, np.arange(len(numbers))), "json")
            group = group.part(~large, repeats=False)
        if not len(group.rows):
            return
        if group.type in _INTEGERS:
            self._arguments.column(args, self._key(group, occurrence, "int"), group.rows, group.values)
        elif group.type == "double":
            self._arguments.floats(
                args, self._key(group, occurrence, "float"), group.rows, group.values.view(np.float64)
            )
        else:
            words = (group.words, group.values)
            self._arguments.texts(args, self._key(group, occurrence, "str"), group.rows, words)

    def _words(self, kind: str, distinct: list[int], texts: list[bytes]) -> list[str]:
        if kind == "ref":
            return [self._plane.stat_name(number) for number in distinct]
        cut = [texts[number][: limits.STRING_BYTES_MAX] for number in distinct]
        if kind == "bytes":
            return [base64.b64encode(text).decode() for text in cut]
        return [decoded(text) for text in cut]

    def _key(self, group: _Group, occurrence: int, kind: str) -> str:
        owner = (group.name, group.type, occurrence, kind)
        key = self._keys.get(owner)
        if key is None:
            plain = f"@{group.name}" if group.name.startswith("@") else group.name
            key = f"{plain}#{occurrence + 1}" if occurrence else plain
            while (key, kind) in self._taken:
                key += f":{group.type}"
            self._keys[owner] = key
            self._taken.add((key, kind))
        return key

    def _occurrences(self, group: _Group) -> Iterator[_Group]:
        """The first value of each row, the second, and so on."""
        for _ in range(_REPEATS_MAX):
            if not group.repeats:
                yield group
                return
            first = _first_of_each(group.rows)
            yield group.part(first, repeats=False)
            group = group.part(~first, repeats=True)
            if not len(group.rows):
                return
        self._findings.lose("repeated_stat", len(group.rows))


def _first_of_each(rows: Array) -> Array:
    return np.append(True, rows[1:] != rows[:-1])


def _merged(one: _Group, other: _Group) -> _Group:
    """Two stats that the plane calls the same."""
    rows = np.concatenate([one.rows, other.rows])
    order = np.argsort(rows, kind="stable")
    values = np.concatenate([one.values, other.values + len(one.words)])[order]
    return _Group(one.name, one.type, rows[order], values, one.words + other.words, repeats=True)
