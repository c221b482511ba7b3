"""Tag streams of inputs: what Kineto would print, and hostile ones."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.decode.op_inputs import Malformed, signature


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def svarint(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def tensor(dtype: int, sizes: list[int], strides: list[int]) -> bytes:
    return bytes([1, dtype]) + varint(len(sizes)) + b"".join(map(svarint, sizes + strides))


def test_what_kineto_prints_of_a_convolution() -> None:
    # GIVEN the inputs of aten::convolution, of which torch 2.13 prints what stands below
    stream = (
        tensor(6, [1, 3, 8, 8], [192, 64, 8, 1])
        + tensor(6, [4, 3, 3, 3], [27, 9, 3, 1])
        + b"\x00"
        + b"\x09\x02\x02\x02"
        + b"\x07\x00"
        + b"\x09\x02\x00\x00"
        + b"\x05\x02"
    )
    assert json.loads(signature(stream)) == {
        "Input Dims": [[1, 3, 8, 8], [4, 3, 3, 3], [], [], [], [], []],
        "Input type": ["float", "float", "", "ScalarList", "Scalar", "ScalarList", "Scalar"],
        "Input Strides": [[192, 64, 8, 1], [27, 9, 3, 1], [], [], [], [], []],
        "Concrete Inputs": ["", "", "", "[1, 1]", "False", "[0, 0]", "1"],
    }


def test_lists_of_tensors_and_tensors_that_cannot_be_asked() -> None:
    stream = b"\x04\x03" + tensor(4, [2], [1]) + b"\x00" + b"\x02\x0f" + b"\x03\x06\x01\x06" + b"\x0c"
    assert json.loads(signature(stream)) == {
        "Input Dims": [[[2], [], []], [3], []],
        "Input type": ["TensorList", "float", ""],
        "Input Strides": [[[1], [], []], [], []],
        "Concrete Inputs": ["", "", ""],
    }


def test_a_list_that_was_cut_says_how_long_it_was() -> None:
    stream = b"\x0e\xac\x02\x02" + tensor(6, [2], [1]) + tensor(6, [3], [1]) + b"\x07\x00"
    assert json.loads(signature(stream)) == {
        "Input Dims": [[[2], [3]], []],
        "Input type": ["TensorList", "Scalar"],
        "Input Strides": [[[1], [1]], []],
        "Concrete Inputs": ["300 tensors, the first 2 are here", "False"],
    }
    with pytest.raises(Malformed):
        signature(b"\x0e\xac\x02\x03" + tensor(6, [2], [1]))


def test_nested_tensors_have_the_sizes_of_each() -> None:
    stream = b"\x0d\x06\x02\x01" + svarint(2) + svarint(3) + b"\x04\x01" + b"\x0d\x04\x00\x00"
    assert json.loads(signature(stream)) == {
        "Input Dims": [[[2], [3]], [[]]],
        "Input type": ["float", "TensorList"],
        "Input Strides": [[], [[]]],
        "Concrete Inputs": ["", ""],
    }


@pytest.mark.parametrize(
    ("value", "printed"),
    [(0.0, "0."), (-0.0, "-0."), (2.5, "2.5"), (0.1, "0.10000000000000001"), (1e10, "10000000000"), (-3.0, "-3.")],
)
def test_floats_are_printed_as_torch_prints_them(value: float, printed: str) -> None:
    assert json.loads(signature(b"\x06" + struct.pack("<d", value)))["Concrete Inputs"] == [printed]


@pytest.mark.parametrize(("value", "printed"), [(1 + 2j, "1.+2.j"), (0.5 - 1j, "0.5-1.j")])
def test_complex_numbers(value: complex, printed: str) -> None:
    stream = b"\x08" + struct.pack("<dd", value.real, value.imag)
    assert json.loads(signature(stream))["Concrete Inputs"] == [printed]


@pytest.mark.parametrize(
    "stream",
    [
        b"\x63",  # no such tag
        b"\x01\x06\x04\x02",  # four dimensions, one size
        b"\x05" + b"\xff" * 10,  # a number without end
        b"\x09" + varint(1 << 60),  # a list longer than any stream
        b"\x04\x01\x05\x02",  # a scalar in a list of tensors
        b"\x0d\x06" + varint(1 << 40) + b"\x01",  # a nested tensor of more than fit a stream
        b"\x0d\x06\x02\x01\x02",  # of two, one size
        b"\x06\x00",
    ],
)
def test_hostile_streams_are_refused(stream: bytes) -> None:
    with pytest.raises(Malformed):
        signature(stream)


@given(st.binary(max_size=200))
def test_any_bytes_give_json_or_malformed(stream: bytes) -> None:
    try:
        said = json.loads(signature(stream))
    except Malformed:
        return
    assert len({len(said[key]) for key in said}) == 1
