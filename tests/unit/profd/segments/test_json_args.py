from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from profd.events import ArgColumn, Dictionary
from profd.segments.json_args import ArgsDecoder, decode_ints, encode_args, encode_ints

HUGE = 1 << 70
VALUES = [
    *[("int", value) for value in (0, -1, 2**63 - 1, -(2**63))],
    *[("float", value) for value in (0.0, -0.0, 5.0, 1e300, 5e-324, math.inf, -math.inf, math.nan)],
    *[("str", value) for value in ("", "7", "a\ud800b", "\x1ad800", "\x1anan", '"\\', "nul\0")],
    # JSON as it came in, and what is none, or would come back as another type.
    *[
        ("json", value)
        for value in ("null", "true", "[1, 2]", '{"a":\t1}', str(HUGE), "7", "1.5", '"x"', " [1]", "{", "")
    ],
]


def column(kind: str, values: list, rows: list[int]) -> ArgColumn:
    if kind in ("str", "json"):
        words = Dictionary()
        codes = np.array(words.codes(values), dtype=np.int32)
        return ArgColumn(kind, np.array(rows), codes, words)
    return ArgColumn(kind, np.array(rows), np.array(values, dtype=np.int64 if kind == "int" else np.float64))


def plain(args: dict[tuple[str, str], ArgColumn]) -> dict[tuple[str, str], list]:
    return {
        key: [
            (row, repr(arg.dictionary.values[value] if arg.dictionary is not None else value))
            for row, value in zip(arg.rows.tolist(), arg.values.tolist(), strict=True)
        ]
        for key, arg in args.items()
    }


def stored(array: pa.Array) -> pa.ChunkedArray:
    return pa.chunked_array([array.dictionary_encode()])


@pytest.mark.parametrize("key", ["key", "a.b", "", "Ev Idx", "k\udfff", "k\x1aint", "\x1astr"])
@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_a_value_comes_back(key, kind, value):
    args = {(key, kind): column(kind, [value], [1])}
    array = encode_args(args, 0, 3)
    assert array.is_null().to_pylist() == [True, False, True]
    assert len(json.loads(array[1].as_py())) == 1
    assert plain(ArgsDecoder(None, {}).decode(stored(array), None)) == plain(args)


def test_several_types_of_a_key_in_one_row():
    args = {("k", kind): column(kind, [value], [0]) for kind, value in [("str", "x"), ("int", 1), ("json", "[]")]}
    array = encode_args(args, 0, 1)
    assert list(json.loads(array[0].as_py())) == ["k", "k\x1aint", "k\x1ajson"]
    assert plain(ArgsDecoder(None, {}).decode(stored(array), None)) == plain(args)


def test_some_rows_and_some_keys():
    args = {("a", "int"): column("int", [1, 2, 3], [0, 2, 4]), ("b", "str"): column("str", ["x", "y"], [2, 3])}
    array = stored(encode_args(args, 0, 5))
    assert plain(ArgsDecoder({"a"}, {}).decode(array, np.array([2, 3, 4]))) == {("a", "int"): [(2, "2"), (4, "3")]}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a":01}', '{"a":"\\x"}', "7"])
def test_what_is_no_object_is_damage(text):
    with pytest.raises(ValueError, match="no JSON"):
        ArgsDecoder(None, {}).decode(stored(pa.array([text])), None)


def test_several_integers_in_a_row():
    rows = np.array([0, 0, 3, 5, 5, 5])
    arg = ArgColumn("ints", rows, np.array([1, -(2**63), 2**63 - 1, 0, 7, 7]))
    array = encode_ints(arg, 0, 7)
    assert array.to_pylist() == ["[1,-9223372036854775808]", None, None, "[9223372036854775807]", None, "[0,7,7]", None]
    assert plain({("p", "ints"): decode_ints(stored(array))}) == plain({("p", "ints"): arg})
