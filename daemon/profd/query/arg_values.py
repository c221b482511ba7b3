"""Values of arguments as text and as numbers, and as the columns `arg.<key>` of `profctl sql`.

A key beyond limits.ARG_KEYS_MAX is in the object of REST. `@key` is a member of a record that is no argument, `@@key`
an argument `@key`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from profd.errors import BadInput, BadTrace, Exhausted
from profd.events import ArgColumn, EventTable
from profd.events.table import Array
from profd.limits import SQL_ARGS_MAX
from profd.model.text import encodable
from profd.segments import plain_json
from profd.segments.columns import LIST_ARG
from profd.segments.meta import REMEDY

REST: Final = "@extra"
PREFIX: Final = "arg."
TOO_MANY: Final = f"there are more than {SQL_ARGS_MAX:,} arguments: ask about a step or a window (--step, --window)"
_REST_MAX: Final = SQL_ARGS_MAX // 10  # of a segment, which are Python's
_INT64: Final = range(-(1 << 63), 1 << 63)


@dataclass(frozen=True, slots=True)
class Values:
    """Of arguments, a row each: text as it is and all else as JSON; numbers are null for what is none."""

    keys: pa.DictionaryArray
    rows: Array
    texts: pa.Array
    numbers: pa.Array


def values_of(key: str, arg: ArgColumn, wanted: Collection[str] | None = None) -> Values | None:
    """What an argument of a table has of these keys, or of all; None where it is none. Exhausted for too many."""
    if key == REST:
        return None if arg.dictionary is None else _of_rest(arg, arg.dictionary.values, wanted)
    shown = key[1:] if key.startswith("@@") else key
    if (shown is key and key.startswith("@")) or not (wanted is None or shown in wanted):
        return None
    rows, texts, numbers = _plain(arg)
    return Values(_keys([encodable(shown)], np.zeros(len(rows), dtype=np.int32)), rows, texts, numbers)


def _plain(arg: ArgColumn) -> tuple[Array, pa.Array, pa.Array]:
    rows, numbers = arg.rows, pa.nulls(len(arg.rows), pa.float64())
    if arg.type == LIST_ARG:
        rows, first = np.unique(arg.rows, return_index=True)
        texts = pa.array([json.dumps(some.tolist()) for some in np.split(arg.values, first[1:])], pa.string())
        return rows, texts, pa.nulls(len(rows), pa.float64())
    if arg.dictionary is not None:
        words = pa.array([encodable(word) for word in arg.dictionary.values], pa.string())
        return rows, words.take(pa.array(arg.values)), numbers
    return rows, pa.array(arg.values).cast(pa.string()), pa.array(arg.values.astype(np.float64))


def _of_rest(arg: ArgColumn, objects: Sequence[str], wanted: Collection[str] | None) -> Values:
    known: dict[str, int] = {}
    rows: list[int] = []
    codes: list[int] = []
    said: list[tuple[str, float | None]] = []
    for row, code in zip(arg.rows.tolist(), arg.values.tolist(), strict=True):
        for key, value in _members(objects[code]).items():
            if wanted is None or key in wanted:
                rows.append(row)
                codes.append(known.setdefault(key, len(known)))
                said.append(_said(value))
        if len(rows) > _REST_MAX:
            raise Exhausted(TOO_MANY)
    texts, numbers = zip(*said, strict=True) if said else ((), ())
    keys = _keys([encodable(key) for key in known], np.array(codes, dtype=np.int32))
    return Values(keys, np.array(rows, np.int64), pa.array(texts, pa.string()), pa.array(numbers, pa.float64()))


def _members(text: str) -> dict[str, Any]:
    try:
        found = plain_json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadTrace(f"arguments of an event are no JSON ({error}): the trace is damaged. {REMEDY}") from error
    if not isinstance(found, dict):
        raise BadTrace(f"arguments of an event are no JSON object: the trace is damaged. {REMEDY}")
    return found


def _keys(words: list[str], codes: Array) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(words, pa.string()))


def _said(value: Any) -> tuple[str, float | None]:
    if isinstance(value, str):
        return encodable(value), None
    is_number = type(value) is float or (type(value) is int and value in _INT64)
    return json.dumps(value), float(value) if is_number else None


class ArgColumns:
    """Arguments as columns of `events`, of one trace or several: `arg.<key>`, as a question names them.

    Whole numbers are BIGINT, numbers DOUBLE, all else is text, as the table `args` has it; so is all of a trace that
    has more keys than get a type. A key that no trace has is no column.
    """

    def __init__(self, keys: Sequence[str], args: Iterable[Iterable[tuple[str, str]]]) -> None:
        """`args`: (key, type) of each trace. BadInput where SQL, which ignores case, would take two keys for one."""
        kinds: defaultdict[str, set[str]] = defaultdict(set)
        for key, kind in chain.from_iterable(args) if keys else ():
            kinds[key].add(kind)
        rest = REST in kinds
        types = {key: pa.string() if rest else _type_of(kinds.get(_stored(key), set())) for key in keys}
        self._types = {key: kind for key, kind in types.items() if rest or _stored(key) in kinds}
        if len({key.lower() for key in self._types}) < len(self._types):
            raise BadInput(
                "SQL takes arguments whose names differ by case alone for one: ask for one of them, or the table args"
            )
        self.read = {_stored(key) for key in self._types} | ({REST} if rest and keys else set())

    @property
    def schema(self) -> list[pa.Field]:
        """The columns, in the order of the question."""
        return [pa.field(encodable(PREFIX + key), kind) for key, kind in self._types.items()]

    def columns(self, table: EventTable) -> dict[str, pa.Array]:
        """The columns of a table that was read with the arguments `read`."""
        parts = [values_of(key, arg, self._types) for (key, _), arg in table.args.items()]
        known = [part for part in parts if part is not None]
        return {
            encodable(PREFIX + key): _spread(known, encodable(key), kind, len(table))
            for key, kind in self._types.items()
        }


NO_ARGS: Final = ArgColumns((), ())


def _stored(key: str) -> str:
    return "@" + key if key.startswith("@") else key


def _type_of(kinds: set[str]) -> pa.DataType:
    if kinds == {"int"}:
        return pa.int64()
    return pa.float64() if kinds <= {"int", "float"} else pa.string()


def _spread(parts: Sequence[Values], key: str, kind: pa.DataType, rows: int) -> pa.Array:
    """A column of so many rows; where several values are in one row, the first."""
    place, count = np.full(rows, -1, dtype=np.int64), 0
    texts = []
    for part in parts:
        here = np.flatnonzero(pc.equal(part.keys.cast(pa.string()), key).to_numpy(zero_copy_only=False))
        at = part.rows[here]
        free = place[at] < 0
        place[at[free]] = count + np.flatnonzero(free)
        texts.append(part.texts.take(pa.array(here)))
        count += len(here)
    values = pa.concat_arrays(texts) if texts else pa.array([], pa.string())
    return values.cast(kind).take(pa.array(place, mask=place < 0))
