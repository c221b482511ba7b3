"""EventTable columns to Arrow arrays and back.

Absent is a sentinel in memory and null on disk. Dictionary-coded columns carry
only the strings that the segment uses, so that a segment stands for itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from profd import _engine
from profd.events import ArgColumn, Column, Dictionary
from profd.segments.text import text_array, words_of

Array = npt.NDArray[Any]

_NUMERIC_ARGS: Final[dict[str, tuple[type[np.generic], pa.DataType]]] = {
    "int": (np.int64, pa.int64()),
    "float": (np.float64, pa.float64()),
}
CODED_ARGS: Final = ("str", "json")
LIST_ARG: Final = "ints"
CODED: Final = pa.dictionary(pa.int32(), pa.string())


class Presence(IntEnum):
    """In which rows a column has a value."""

    NOWHERE = 0
    SOMEWHERE = 1
    EVERYWHERE = 2


def presence(spec: Column, values: Array) -> Presence:
    """In which rows a column has a value."""
    if spec.absent is None:
        return Presence.EVERYWHERE
    return Presence(_engine.presence(np.ascontiguousarray(values, dtype=spec.dtype), spec.absent))


def _numbers(values: Array, marks: Array | None, arrow: pa.DataType) -> pa.Array:
    """`marks`: a bit for each row that has a value; None: all have."""
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(arrow, len(values), [None if marks is None else pa.py_buffer(marks), data])


def _compact(codes: Array, dictionary: Dictionary) -> tuple[Array, pa.Array]:
    """(places in the list of the words that occur, that list)"""
    known, values = len(dictionary), dictionary.values  # a decoder may add to them meanwhile
    places, used = _engine.compact_codes(codes, known)
    words = values[:known] if len(used) == known else [values[code] for code in used.tolist()]
    return places, text_array(words)


def column_type(spec: Column) -> pa.DataType:
    """The Arrow type of a column as it is in memory."""
    return CODED if spec.dictionary is not None else pa.from_numpy_dtype(spec.dtype)


def encode_column(
    spec: Column, values: Array, dictionaries: dict[str, Dictionary], arrow: pa.DataType, complete: bool = False
) -> pa.Array:
    """A column, or a slice of it, as an Arrow array: codes and words, or numbers of this type, which holds them all.

    `complete`: it is known to lack no value.
    """
    values = np.ascontiguousarray(values, dtype=spec.dtype)
    marks = None
    if not complete and spec.absent is not None and presence(spec, values) is not Presence.EVERYWHERE:
        marks = _engine.validity(values, spec.absent)
    if spec.dictionary is not None:
        places, words = _compact(values, dictionaries[spec.dictionary])
        return pa.DictionaryArray.from_arrays(_numbers(places, marks, pa.int32()), words, safe=False)
    return _numbers(values.astype(arrow.to_pandas_dtype(), copy=False), marks, arrow)


def arg_type(kind: str) -> pa.DataType:
    """The Arrow type of an argument column."""
    if kind == LIST_ARG:
        return pa.list_(pa.int64())
    return CODED if kind in CODED_ARGS else _NUMERIC_ARGS[kind][1]


def encode_arg(arg: ArgColumn, first: int, rows: int, arrow: pa.DataType) -> pa.Array:
    """Rows `first … first + rows - 1` of a sparse argument, null where a row does not have it."""
    if arg.type == LIST_ARG:
        return _encode_lists(arg, first, rows, arrow)
    low, high = np.searchsorted(arg.rows, (first, first + rows))
    where = arg.rows[low:high] - first
    present = np.zeros(rows, dtype=np.bool_)
    present[where] = True
    marks = np.packbits(present, bitorder="little")
    given = arg.values[low:high]
    if arg.type not in CODED_ARGS:
        return _numbers(_spread(given, where, rows), marks, arrow)
    if arg.dictionary is None:
        raise ValueError(f"argument column of type {arg.type} without a dictionary")
    places, words = _compact(given, arg.dictionary)
    return pa.DictionaryArray.from_arrays(_numbers(_spread(places, where, rows), marks, pa.int32()), words, safe=False)


def _spread(values: Array, where: Array, rows: int) -> Array:
    spread = np.zeros(rows, dtype=values.dtype)
    spread[where] = values
    return spread


def _encode_lists(arg: ArgColumn, first: int, rows: int, arrow: pa.DataType) -> pa.Array:
    edges = np.searchsorted(arg.rows, np.arange(first, first + rows + 1))
    values = pa.array(np.ascontiguousarray(arg.values[edges[0] : edges[-1]], dtype=np.int64))
    offsets = pa.array(edges - edges[0], pa.int32())
    return pa.ListArray.from_arrays(offsets, values, arrow, mask=pa.array(edges[1:] == edges[:-1]))


def _decode_lists(column: pa.ChunkedArray) -> ArgColumn:
    if not pa.types.is_list(column.type):
        raise TypeError(f"a column of lists is of type {column.type}")
    lists = column.combine_chunks()
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    values = lists.flatten()
    rows = np.repeat(np.arange(len(lists), dtype=np.int64), lengths)
    return ArgColumn(LIST_ARG, rows, _plain(pa.chunked_array([values]), 0, np.empty(len(values), dtype=np.int64)))


def _chunks(column: pa.ChunkedArray | pa.Array) -> Iterable[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def decode_codes(
    column: pa.ChunkedArray | pa.Array, dictionary: Dictionary, out: Array | None = None, *, plain: bool = False
) -> Array:
    """Codes (int32, -1 where null) in `dictionary`, which takes up the strings it lacks; into `out` if given.

    `plain`: words as a trace of before has them (`text.words_of`).
    """
    out = np.empty(len(column), dtype=np.int32) if out is None else out
    first = 0
    for given in _chunks(column):
        chunk = given if pa.types.is_dictionary(given.type) else given.dictionary_encode()
        place = np.append(
            np.array(dictionary.codes(words_of(chunk.dictionary, plain=plain)), dtype=np.int32), np.int32(-1)
        )
        part = out[first : first + len(chunk)]
        # What stands in the place of a null is anything at all.
        _engine.recode(values_of(chunk.indices).astype(np.int32, copy=False), place, part)
        fill_absent(part, chunk.indices, -1)
        first += len(chunk)
    return out


def values_of(array: pa.Array) -> Array:
    """The numbers of an Arrow array, not copied; what stands in the place of nulls means nothing."""
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        raise TypeError(f"a column of numbers is of type {array.type}")
    data = array.buffers()[1]
    dtype = array.type.to_pandas_dtype()
    if data is None:
        return np.zeros(len(array), dtype=dtype)
    return np.frombuffer(data, dtype=dtype, count=array.offset + len(array))[array.offset :]


def fill_absent(out: Array, array: pa.Array, absent: int | float) -> None:
    """Set the rows that are null in an Arrow array."""
    if array.null_count:
        valid = np.frombuffer(array.buffers()[0], dtype=np.uint8)
        if out.dtype in (np.int64, np.int32):
            _engine.fill_nulls(out, valid, array.offset, int(absent))
            return
        bits = np.unpackbits(valid, count=array.offset + len(array), bitorder="little")[array.offset :]
        np.copyto(out, absent, where=bits == 0)


def _plain(column: pa.ChunkedArray, absent: int | float, out: Array) -> Array:
    first = 0
    for chunk in column.chunks:
        part = out[first : first + len(chunk)]
        np.copyto(part, values_of(chunk), casting="unsafe")  # narrower in memory
        fill_absent(part, chunk, absent)
        first += len(chunk)
    return out


def decode_column(
    spec: Column, column: pa.ChunkedArray, dictionaries: dict[str, Dictionary], out: Array, *, plain: bool = False
) -> Array:
    """The inverse of `encode_column`, into `out`, an array of its dtype and length. TypeError for other types."""
    if spec.dictionary is not None:
        return decode_codes(column, dictionaries.setdefault(spec.dictionary, Dictionary()), out, plain=plain)
    return _plain(column, 0 if spec.absent is None else spec.absent, out)


def decode_arg(kind: str, column: pa.ChunkedArray, dictionary: Dictionary | None, *, plain: bool = False) -> ArgColumn:
    """The inverse of `encode_arg`."""
    if kind == LIST_ARG:
        return _decode_lists(column)
    if kind in CODED_ARGS:
        dictionary = Dictionary() if dictionary is None else dictionary
        codes = decode_codes(column, dictionary, plain=plain)
        rows = np.flatnonzero(codes >= 0)
        return ArgColumn(kind, rows, codes[rows], dictionary)
    dtype, _ = _NUMERIC_ARGS[kind]
    if column.null_count == 0:
        rows = np.arange(len(column), dtype=np.int64)
    else:
        rows = np.flatnonzero(column.is_valid().to_numpy())
    present = column.drop_null()
    return ArgColumn(kind, rows, _plain(present, 0, np.empty(len(present), dtype=dtype)))
