"""The arguments that have no column of their own, as one JSON object a row, and back.

    {"queued":0,"blocks per SM":0.5}

The type of an argument is that of its JSON value: a number with a point or an exponent is a float, one without an int,
text a str; all else is kept as it came in (json). What would come back as another type, or beside another value of its
key in the same row, says its type behind its key: `"key\\u001ajson":"text"` (U+001A, see `text.py`). Floats that JSON
does not know are `"\\u001anan"`, `"\\u001ainf"`, `"\\u001a-inf"`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from itertools import takewhile
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from profd.events import ArgColumn, Dictionary
from profd.segments.columns import CODED_ARGS, LIST_ARG, decode_codes
from profd.segments.text import MARK, escaped, unescaped

Array = npt.NDArray[Any]
ArgKey = tuple[str, str]

_INT64: Final = range(-(1 << 63), 1 << 63)
_DTYPES: Final[dict[str, type[np.generic]]] = {"int": np.int64, "float": np.float64, LIST_ARG: np.int64}
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BAD: Final = (msgspec.DecodeError, UnicodeError, RecursionError, ValueError)
_TEXT: Final = pa.string()


def encode_args(args: dict[ArgKey, ArgColumn], first: int, rows: int) -> pa.Array:
    """Rows `first … first + rows - 1` as JSON texts; null where a row has none of these arguments."""
    members = [part for part in (_members(args, key, first, rows) for key in args) if len(part[0])]
    if not members:
        return pa.nulls(rows, _TEXT)
    row = np.concatenate([at for at, _ in members])
    texts = pa.concat_arrays([words for _, words in members])
    order = np.argsort(row, kind="stable")
    counts = np.bincount(row, minlength=rows)
    edges = np.concatenate([np.zeros(1, dtype=np.int32), np.cumsum(counts, dtype=np.int32)])
    lists = pa.ListArray.from_arrays(pa.array(edges), texts.take(pa.array(order)), mask=pa.array(counts == 0))
    return pc.binary_join_element_wise("{", pc.binary_join(lists, ","), "}", "")


def encode_ints(arg: ArgColumn, first: int, rows: int) -> pa.Array:
    """Rows `first … first + rows - 1` of an argument of several integers, as JSON; null where a row has none."""
    edges = np.searchsorted(arg.rows, np.arange(first, first + rows + 1))
    numbers = pa.array(np.ascontiguousarray(arg.values[edges[0] : edges[-1]], dtype=np.int64)).cast(_TEXT)
    offsets = pa.array(edges - edges[0], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, numbers, mask=pa.array(edges[1:] == edges[:-1]))
    return pc.binary_join_element_wise("[", pc.binary_join(lists, ","), "]", "")


def decode_ints(column: pa.ChunkedArray) -> ArgColumn:
    """The inverse of `encode_ints`. ArrowInvalid for what is no such text."""
    known = column.is_valid().to_numpy()
    words = column.drop_null().combine_chunks()
    lists = pc.split_pattern(pc.utf8_trim(words.cast(_TEXT), "[]"), ",")
    rows = np.repeat(np.flatnonzero(known), pc.list_value_length(lists).to_numpy(zero_copy_only=False))
    values = lists.flatten().cast(pa.int64()).to_numpy(zero_copy_only=False)
    return ArgColumn(LIST_ARG, rows, values)


def _members(args: dict[ArgKey, ArgColumn], key: ArgKey, first: int, rows: int) -> tuple[Array, pa.Array]:
    """(row, `"key":value`) of an argument where it has a value."""
    arg, kind = args[key], key[1]
    low, high = np.searchsorted(arg.rows, (first, first + rows))
    at, given = arg.rows[low:high] - first, arg.values[low:high]
    if not len(at):
        return at, pa.array([], _TEXT)
    form = _Form(key, _beside_another(args, key))
    if kind == LIST_ARG:
        at, begins = np.unique(at, return_index=True)
        texts = [json.dumps(some.tolist()) for some in np.split(given, begins[1:])]
        return at, pa.array(map(form.member, texts), _TEXT)
    values, place = np.unique(given.view(np.int64) if kind == "float" else given, return_inverse=True)
    words = map(form.member, _texts(kind, values, arg.dictionary))
    return at, pa.array(words, _TEXT).take(pa.array(place))


def _beside_another(args: dict[ArgKey, ArgColumn], key: ArgKey) -> bool:
    """Whether a row has values of several types of this key, and this is not the first of them."""
    earlier = [args[other] for other in takewhile(lambda other: other != key, args) if other[0] == key[0]]
    return any(len(np.intersect1d(other.rows, args[key].rows)) for other in earlier)


def _texts(kind: str, values: Array, dictionary: Dictionary | None) -> Iterable[str]:
    if dictionary is not None:
        return [dictionary.values[code] for code in values.tolist()]
    return map(_float_text, values.view(np.float64).tolist()) if kind == "float" else map(str, values.tolist())


def _float_text(value: float) -> str:
    return repr(value) if abs(value) < float("inf") else f'"\\u001a{value}"'


class _Form:
    """How the members of an argument are written."""

    def __init__(self, key: ArgKey, tagged: bool) -> None:
        name, self._kind = escaped(key[0]), key[1]
        self._tag = _quoted(f"{name}{MARK}{self._kind}") + ":"
        self._key = self._tag if tagged else _quoted(name) + ":"

    def member(self, text: str) -> str:
        """`"key":value`."""
        if self._kind == "str":
            return self._key + _quoted(escaped(text))
        if self._kind == LIST_ARG or (self._kind == "json" and (self._key is self._tag or not _comes_back(text))):
            return self._tag + _quoted(escaped(text))
        return self._key + text


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _comes_back(text: str) -> bool:
    """Whether a JSON text is read as itself, and as no other type."""
    try:
        raw = bytes(msgspec.json.decode(text, type=msgspec.Raw))
        return raw == text.encode() and _kind(raw) == "json" and escaped(text) == text
    except _BAD:
        return False


def _kind(raw: bytes) -> str:
    """The type of the argument that such a value is."""
    if raw[:1] == b'"':
        return "float" if raw.startswith(b'"\\u001a') and raw[7:] in (b'nan"', b'inf"', b'-inf"') else "str"
    if raw[:1] in b"-0123456789":
        if any(sign in raw for sign in b".eE"):
            return "float"
        return "int" if len(raw) < 21 and int(raw) in _INT64 else "json"
    return "json"


class ArgsDecoder:
    """Arguments out of JSON texts. `dictionaries`: those of a reader, which grow."""

    def __init__(self, keys: Collection[str] | None, dictionaries: dict[ArgKey, Dictionary]) -> None:
        self._keys = keys
        self._dictionaries = dictionaries

    def decode(self, column: pa.ChunkedArray, rows: Array | None) -> dict[ArgKey, ArgColumn]:
        """The inverse of `encode_args`, in these rows (ascending) or all; of `keys` alone, if there are any.

        ValueError for what is no such text.
        """
        words = Dictionary()
        codes = decode_codes(column, words, plain=True)
        at = np.flatnonzero(codes >= 0)
        if rows is not None:
            at = rows[codes[rows] >= 0]
        known, place = np.unique(codes[at], return_inverse=True)
        found: dict[ArgKey, tuple[list[int], list[Any]]] = {}
        for number, code in enumerate(known.tolist()):
            for key, value in self._parsed(words.values[code]):
                texts, values = found.setdefault(key, ([], []))
                texts.append(number)
                values.append(value)
        return {key: self._column(key, *given, at, place, len(known)) for key, given in found.items()}

    def _parsed(self, text: str) -> Iterable[tuple[ArgKey, Any]]:
        try:
            members = _OBJECT.decode(text)
        except _BAD as error:
            raise ValueError(f"its arguments are no JSON ({error})") from error
        for shown, raw in members.items():
            name, mark, kind = shown.rpartition(MARK)
            tagged = bool(mark) and kind in ("int", *CODED_ARGS, "float", LIST_ARG)
            name = name if tagged else shown
            key = unescaped(name) if MARK in name else name
            if self._keys is None or key in self._keys:
                yield self._typed(key, kind if tagged else "", bytes(raw))

    @staticmethod
    def _typed(key: str, stated: str, raw: bytes) -> tuple[ArgKey, Any]:
        kind = stated or _kind(raw)
        if kind == "int":
            return (key, kind), int(raw)
        if kind == "float":
            return (key, kind), float(raw[7:-1] if raw[:1] == b'"' else raw)
        if kind == "json" and not stated:
            return (key, kind), raw.decode()
        word = unescaped(msgspec.json.decode(raw, type=str))
        return (key, kind), msgspec.json.decode(word, type=list[int]) if kind == LIST_ARG else word

    def _column(
        self, key: ArgKey, texts: list[int], values: list[Any], at: Array, place: Array, count: int
    ) -> ArgColumn:
        """The values of the rows whose text is one of these."""
        kind, dictionary = key[1], None
        index = np.full(count, -1, dtype=np.int64)
        index[texts] = np.arange(len(texts))
        chosen = index[place]
        rows, chosen = at[chosen >= 0], chosen[chosen >= 0]
        if kind == LIST_ARG:
            lengths = np.array([len(value) for value in values])[chosen]
            flat = [number for value in chosen.tolist() for number in values[value]]
            return ArgColumn(kind, np.repeat(rows, lengths), np.array(flat, dtype=np.int64))
        if kind in CODED_ARGS:
            dictionary = self._dictionaries.setdefault(key, Dictionary())
            return ArgColumn(kind, rows, np.array(dictionary.codes(values), dtype=np.int32)[chosen], dictionary)
        return ArgColumn(kind, rows, np.array(values, dtype=_DTYPES[kind])[chosen])
