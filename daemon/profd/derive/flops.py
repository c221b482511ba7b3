"""Floating point operations from recorded shapes, with the formulas torch.profiler uses.

Kineto writes shapes and no FLOPS; torch's own table counts `aten::conv2d`,
`aten::mm`, `aten::addmm`, `aten::bmm`, `aten::baddbmm`, `aten::mul` and
`aten::add`, and nothing else. So do we: anything more would not agree with the
table a user knows. A shape that a formula cannot use counts as no operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np

from profd import _engine
from profd.events import Dictionary, EventTable, Kind
from profd.events.table import Array
from profd.model.decodable import decodable

# A product of hostile dimensions is an absurd float, never an endless integer.
_DIMS_MAX: Final = 16

Dims = list[int]


@decodable
class Signature(msgspec.Struct, gc=False):
    """One entry of the dictionary `inputs`: what an op was called with."""

    dims: list[Any] = msgspec.field(name="Input Dims", default_factory=list)
    types: list[str] = msgspec.field(name="Input type", default_factory=list)
    concrete: list[Any] = msgspec.field(name="Concrete Inputs", default_factory=list)

    def tensor(self, position: int) -> Dims | None:
        """Dimensions of the tensor at a position; None where there is none (a scalar, a list, garbage)."""
        if position >= len(self.dims):
            return None
        if position < len(self.types) and self.types[position] in ("", "Scalar", "ScalarList", "TensorList"):
            return None
        dims = self.dims[position]
        if not isinstance(dims, list) or len(dims) > _DIMS_MAX:
            return None
        if not all(isinstance(dim, int) and dim >= 0 for dim in dims):
            return None
        return dims

    def numbers(self, position: int, count: int) -> Dims | None:
        """A concrete argument as `count` integers; None where it is not that."""
        if position >= len(self.concrete):
            return None
        try:
            value = msgspec.json.decode(str(self.concrete[position]), type=list[int] | int)
        except (msgspec.DecodeError, ValueError):
            return None
        value = [value] if isinstance(value, int) else value
        return value if len(value) == count else None


_signature = msgspec.json.Decoder(Signature)


def parse_signature(text: str) -> Signature | None:
    """The signature behind an entry of the dictionary `inputs`; None if it is not one."""
    try:
        return _signature.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _product(dims: Dims) -> float:
    # Exact up to 2^53, and inf instead of an integer of a thousand digits.
    return math.prod((float(dim) for dim in dims), start=1.0)


def _matmul(left: Dims | None, right: Dims | None) -> float:
    if not left or not right or left[-1] == 0:
        return 0.0
    return 2.0 * (_product(left) / left[-1]) * _product(right)


def _batched(left: Dims | None, right: Dims | None) -> float:
    if not left or not right or left[0] == 0:
        return 0.0
    return _matmul(left, right) / left[0]


def _elementwise(inputs: Signature) -> float:
    dims = inputs.tensor(0)
    return 0.0 if dims is None else _product(dims)


def _conv2d(inputs: Signature) -> float:
    image, kernel = inputs.tensor(0), inputs.tensor(1)
    stride, padding, dilation = (inputs.numbers(position, 2) for position in (3, 4, 5))
    groups = inputs.numbers(6, 1)
    if image is None or kernel is None or len(image) != 4 or len(kernel) != 4:
        return 0.0
    if stride is None or padding is None or dilation is None or groups is None:
        return 0.0
    if 0 in stride or groups[0] == 0:
        return 0.0
    batch, channels_in = image[:2]
    channels_out = kernel[0]
    out = [(image[2 + i] + 2 * padding[i] - dilation[i] * (kernel[2 + i] - 1) - 1) // stride[i] + 1 for i in (0, 1)]
    if min(out) < 0:
        return 0.0
    return 2.0 * _product([batch, *out, *kernel[2:], channels_in, channels_out]) / groups[0]


_FORMULAS: Final[dict[str, Callable[[Signature], float]]] = {
    "aten::conv2d": _conv2d,
    "aten::mm": lambda s: _matmul(s.tensor(0), s.tensor(1)),
    "aten::addmm": lambda s: _matmul(s.tensor(1), s.tensor(2)),
    "aten::bmm": lambda s: _batched(s.tensor(0), s.tensor(1)),
    "aten::baddbmm": lambda s: _batched(s.tensor(1), s.tensor(2)),
    "aten::mul": _elementwise,
    "aten::add": _elementwise,
}


def op_flops(name: str, inputs: str) -> float:
    """Operations of one call; 0 for an op without a formula or inputs it cannot use.

    `inputs` is the JSON object stored with the event.
    """
    formula = _FORMULAS.get(name)
    if formula is None:
        return 0.0
    signature = parse_signature(inputs)
    if signature is None:
        return 0.0
    flops = formula(signature)
    return flops if math.isfinite(flops) else 0.0


def has_formula(names: list[str]) -> Array:
    """Which names are those of ops with a formula; the entry after the last answers for NO_CODE."""
    return np.array([*(name in _FORMULAS for name in names), False], dtype=bool)


def flops_of_table(table: EventTable, part: Array, parts: int, counted: Array) -> Array | None:
    """Operations of the calls of each part, float64; None where the trace has no shapes.

    `table`: of name, kind and inputs. `part`: of each row, int32. `counted`: uint8, which rows are calls.
    """
    inputs = table.dictionaries.get("inputs")
    if "inputs" not in table.columns or not inputs or not inputs.values:
        return None
    name, kind, shapes = (np.ascontiguousarray(table.column(column)) for column in ("name", "kind", "inputs"))
    names = table.dictionaries.get("name", Dictionary()).values
    return flops_of_parts(part, parts, (name, names), kind, (shapes, inputs.values), counted)


def flops_of_parts(
    part: Array,
    parts: int,
    name: tuple[Array, list[str]],
    kind: Array,
    inputs: tuple[Array, list[str]],
    counted: Array | None = None,
) -> Array:
    """Operations of the calls of each part, float64. No part may have calls of two ops with a formula.

    All are columns, `name` and `inputs` codes and their words. `counted`: uint8, which rows are calls; None: all.
    """
    formulas = has_formula(name[1]).view(np.uint8)
    if not inputs[1] or not formulas.any():
        return np.zeros(parts)
    seen, count = _engine.count_pairs(
        part, parts, name[0], formulas, kind, Kind.CPU_OP, inputs[0], len(inputs[1]), counted
    )
    pairs = [*zip(name[0][seen].tolist(), inputs[0][seen].tolist(), strict=True)]
    flops = {(op, code): op_flops(name[1][op], inputs[1][code]) for op, code in {*pairs}}
    each = np.array([flops[pair] for pair in pairs], dtype=np.float64)
    return np.bincount(part[seen], weights=each * count, minlength=parts)
