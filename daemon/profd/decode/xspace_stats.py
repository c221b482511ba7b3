"""Stats of events to argument columns.

An argument is named as the stat is. Where a name comes with two types that would share a column
("uint64" and "int64"; "str", "bytes" and "ref"), later ones are `name:type`; a second value of the
same stat in one event is `name#2`. Names that begin with '@' get one more (profd.decode.chrome).
Bytes are in base64; integers above 63 bits are JSON texts.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from profd import limits
from profd.decode.batch import Findings
from profd.decode.xspace_plane import STAT_TYPES, Plane
from profd.decode.xspace_wire import decoded, lose
from profd.errors import Exhausted
from profd.events import ArgColumn, Dictionary
from profd.events.table import Array

CORRELATION: Final = "correlation_id"
DEFAULT_TYPES: Final = {"int": "int64", "float": "double", "str": "str", "json": "uint64"}
_INTEGERS: Final = ("uint64", "int64")
_REPEATS_MAX: Final = 8  # values of one stat in one event that are kept


@dataclass(frozen=True, slots=True)
class _Group:
    """The values of one stat with one type, by row."""

    name: str
    type: str
    rows: Array
    values: Array


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
            lose(self._findings, "too_many_stat_names")
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

    def columns(self, slice_: dict[str, Any], rows: Array) -> tuple[dict[tuple[str, str], ArgColumn], dict[str, Any]]:
        """(arguments, rows with a value for each name of stat and the correlation ids).

        `rows`: the row of the batch of each event of the slice, -1 for those that are in none.
        The second has "rows" (name -> rows) and "correlation" ((rows, values) or None).
        """
        args: dict[tuple[str, str], ArgColumn] = {}
        present: dict[str, Array] = {}
        correlation = None
        texts = [text[: limits.STRING_BYTES_MAX] for text in slice_["texts"]]
        for group in self._groups(slice_, rows):
            present.setdefault(group.name, group.rows)
            rest = group
            if group.name == CORRELATION and group.type in _INTEGERS:
                taken, rest = self._correlation(group, correlation is not None)
                correlation = taken or correlation
            for occurrence, part in enumerate(self._occurrences(rest)):
                self._add(args, part, occurrence, texts)
        return args, {"rows": present, "correlation": correlation}

    def _groups(self, slice_: dict[str, Any], rows: Array) -> list[_Group]:
        types = slice_["stat_type"]
        lose(self._findings, "stat_without_value", int(np.count_nonzero(types == 0)))
        row = rows[slice_["stat_row"]] if len(types) else slice_["stat_row"]
        used = np.flatnonzero((types != 0) & (row >= 0))
        _, which = np.unique(slice_["stat_id"][used], return_inverse=True)
        # Small numbers are sorted by radix.
        combined = which * 8 + types[used]
        if len(combined) and int(combined.max()) < 1 << 16:
            combined = combined.astype(np.uint16)
        order = np.argsort(combined, kind="stable")
        cuts = np.flatnonzero(np.diff(combined[order])) + 1
        values = slice_["stat_value"]
        groups: dict[tuple[str, str], _Group] = {}
        for some in np.split(used[order], cuts):
            if len(some):
                number = int(slice_["stat_id"][some[0]])
                kind = STAT_TYPES[int(types[some[0]])]
                name = self._plane.stat_name(number)
                group = _Group(name, kind, row[some], values[some])
                groups[name, kind] = _merged(groups[name, kind], group) if (name, kind) in groups else group
        return list(groups.values())

    def _correlation(self, group: _Group, already: bool) -> tuple[tuple[Array, Array] | None, _Group]:
        """What goes to the column `correlation`: the first of each event, of the first type that was met."""
        if already or group.type != (self.correlation_type or group.type):
            return None, group
        self.correlation_type = group.type
        first = np.append(True, group.rows[1:] != group.rows[:-1]) & (group.values >= 0)
        rest = _Group(group.name, group.type, group.rows[~first], group.values[~first])
        return (group.rows[first], group.values[first]), rest

    def _add(self, args: dict[tuple[str, str], ArgColumn], group: _Group, occurrence: int, texts: list[bytes]) -> None:
        large = (group.values < 0) if group.type == "uint64" else np.zeros(len(group.rows), dtype=np.bool_)
        if large.any():
            key = self._key(group, occurrence, "json")
            numbers = [str(value) for value in group.values[large].view(np.uint64).tolist()]
            self._arguments.texts(args, key, group.rows[large], (numbers, np.arange(len(numbers))), "json")
        rows, values = group.rows[~large], group.values[~large]
        if not len(rows):
            return
        if group.type in _INTEGERS:
            self._arguments.column(args, self._key(group, occurrence, "int"), rows, values)
        elif group.type == "double":
            self._arguments.floats(args, self._key(group, occurrence, "float"), rows, values.view(np.float64))
        else:
            words = self._words(group.type, values, texts)
            self._arguments.texts(args, self._key(group, occurrence, "str"), rows, words)

    def _words(self, kind: str, values: Array, texts: list[bytes]) -> tuple[list[str], Array]:
        distinct, place = np.unique(values, return_inverse=True)
        if kind == "ref":
            words = [self._plane.stat_name(number) for number in distinct.tolist()]
        elif kind == "bytes":
            words = [base64.b64encode(texts[number]).decode() for number in distinct.tolist()]
        else:
            words = [decoded(texts[number]) for number in distinct.tolist()]
        return words, place

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
            if not len(group.rows):
                return
            first = np.append(True, group.rows[1:] != group.rows[:-1])
            yield _Group(group.name, group.type, group.rows[first], group.values[first])
            group = _Group(group.name, group.type, group.rows[~first], group.values[~first])
        lose(self._findings, "repeated_stat", len(group.rows))


def _merged(one: _Group, other: _Group) -> _Group:
    """Two stats that the plane calls the same."""
    rows = np.concatenate([one.rows, other.rows])
    order = np.argsort(rows, kind="stable")
    return _Group(one.name, one.type, rows[order], np.concatenate([one.values, other.values])[order])
