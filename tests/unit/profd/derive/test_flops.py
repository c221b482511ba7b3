"""FLOPS of single calls; the expected values are torch's for the same shapes, or worked out by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd.derive.flops import flops_of_table, op_flops
from profd.events import Kind

from tests.support.tables import Event, table_of

OPS = ["aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::mul", "aten::add", "aten::conv2d"]


def signature(dims: list[Any], concrete: list[Any] | None = None, types: list[str] | None = None) -> str:
    value: dict[str, Any] = {"Input Dims": dims}
    if types is not None:
        value["Input type"] = types
    if concrete is not None:
        value["Concrete Inputs"] = concrete
    return json.dumps(value)


def conv(*, stride: str = "[1, 1]", padding: str = "[1, 1]", dilation: str = "[1, 1]", groups: str = "1") -> str:
    dims = [[2, 3, 16, 16], [8, 3, 3, 3], [8], [], [], [], []]
    return signature(dims, ["", "", "", stride, padding, dilation, groups])


@pytest.mark.parametrize(
    ("name", "inputs", "flops"),
    [
        ("aten::mm", signature([[32, 10], [10, 128]]), 81_920),
        ("aten::addmm", signature([[128], [32, 64], [64, 128], [], []]), 524_288),
        ("aten::bmm", signature([[2, 3, 4], [2, 4, 5]]), 240),
        ("aten::baddbmm", signature([[2, 3, 5], [2, 3, 4], [2, 4, 5], [], []]), 240),
        ("aten::add", signature([[], [], []], types=["float", "float", "Scalar"]), 1),
        ("aten::mul", signature([[4, 5], [5]], types=["float", "float"]), 20),
        ("aten::conv2d", conv(), 221_184),
        ("aten::conv2d", conv(stride="[2, 2]"), 55_296),
        ("aten::conv2d", conv(padding="[0, 0]"), 169_344),
        ("aten::conv2d", conv(groups="3"), 73_728),
    ],
)
def test_known_values(name: str, inputs: str, flops: int) -> None:
    assert op_flops(name, inputs) == flops


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("aten::relu", signature([[4, 5]])),
        ("aten::mm", "not json"),
        ("aten::mm", "[]"),
        ("aten::mm", '{"Input Dims": 7}'),
        ("aten::mm", signature([])),
        ("aten::mm", signature([[0, 3], [3, 4]])[:-1]),
        ("aten::mm", signature([[2, 0], [0, 4]])),
        ("aten::mm", signature([[2, -3], [3, 4]])),
        ("aten::mm", signature([[2, 3.5], [3, 4]])),
        ("aten::mm", signature([[2, [3]], [3, 4]])),
        ("aten::mm", signature([[2] * 100, [2] * 100])),
        ("aten::bmm", signature([[0, 3, 4], [0, 4, 5]])),
        ("aten::mul", signature([[], [4]], types=["Scalar", "float"])),
        ("aten::conv2d", conv(stride="[0, 1]")),
        ("aten::conv2d", conv(groups="0")),
        ("aten::conv2d", conv(padding="same")),
        ("aten::conv2d", conv(dilation="[1]")),
        ("aten::conv2d", conv(dilation="[99, 99]")),
        ("aten::conv2d", signature([[2, 3, 16], [8, 3, 3], [8]])),
        ("aten::mul", signature([[10**300] * 9])),
    ],
)
def test_what_no_formula_can_use_counts_as_nothing(name: str, inputs: str) -> None:
    assert op_flops(name, inputs) == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=10,
)


@given(st.sampled_from(OPS), st.lists(JSON, max_size=7), st.lists(JSON, max_size=7), st.lists(JSON, max_size=7))
def test_never_more_than_a_number(name: str, dims: list[Any], types: list[Any], concrete: list[Any]) -> None:
    text = json.dumps({"Input Dims": dims, "Input type": types, "Concrete Inputs": concrete})
    flops = op_flops(name, text)
    assert flops >= 0
    assert np.isfinite(flops)


def test_parts_have_the_operations_of_their_calls() -> None:
    large, small = {"inputs": signature([[2, 3], [3, 4]])}, {"inputs": signature([[1, 1], [1, 1]])}
    table = table_of(
        [
            Event("aten::mm", 0, 1, fields=large),
            Event("aten::mm", 1, 2, fields=small),
            Event("aten::relu", 2, 3, fields=large),  # no formula
            Event("aten::mm", 3, 4),  # no shapes
            Event("aten::mm", 4, 5, Kind.RUNTIME, fields=large),
            Event("aten::mm", 5, 6, fields=large),
            Event("aten::mm", 6, 7, fields=large),  # no call
        ]
    )
    part, counted = np.array([0, 0, 0, 2, 2, 2, 2], dtype=np.int32), np.array([1] * 6 + [0], dtype=np.uint8)
    found = flops_of_table(table, part, 4, counted)
    assert found is not None
    assert found.tolist() == [50.0, 0.0, 48.0, 0.0]


def test_a_table_without_shapes_has_no_operations() -> None:
    assert flops_of_table(table_of([Event("aten::mm", 0, 1)]), np.zeros(1, np.int32), 1, np.ones(1, np.uint8)) is None
