"""Kernels against columns that no decoder makes: an error that says why, or an answer, and the process lives.

`make sanitize` runs this under ASan and UBSan.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profd import _engine

_EDGES = {
    np.int64: (-(2**63), -(2**63) + 1, -3, -2, -1, 0, 1, 2, 3, 7, 2**31, 2**62, 2**63 - 1),
    np.int32: (-(2**31), -2, -1, 0, 1, 2, 3, 7, 2**31 - 1),
    np.uint8: (0, 1, 2, 3, 16, 31, 128, 255),
    np.float64: (float("nan"), float("-inf"), -1.0, 0.0, 0.5, float("inf")),
}
_NUMBERS = st.sampled_from((0, 1, 2, 3, 7, 8, 65, 2**20))


@st.composite
def columns(draw: Any, dtype: Any, rows: int) -> Any:
    """Mostly of the length and type that are right, of any values."""
    if draw(st.integers(0, 15)) == 0:
        dtype = draw(st.sampled_from(sorted(_EDGES, key=str)))
    if draw(st.integers(0, 9)) == 0:
        rows = draw(st.integers(0, 9))
    few = draw(st.booleans())
    values = (
        st.integers(0, min(max(rows - 1, 0), 255))
        if few and dtype is not np.float64
        else st.sampled_from(_EDGES[dtype])
    )
    drawn = draw(st.lists(values, min_size=min(rows, 70), max_size=min(rows, 70)))
    made = np.resize(np.array(drawn, dtype=dtype), rows)
    shape = draw(st.integers(0, 19))
    if shape == 0:
        return np.repeat(made, 2)[::2]
    if shape == 1:
        return np.frombuffer(b"\0" + made.tobytes(), dtype=dtype, offset=1)
    return np.sort(made) if draw(st.booleans()) else made


I64, I32, U8, F64 = np.int64, np.int32, np.uint8, np.float64


class Given:
    """What one example draws from: columns of one length, and numbers."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self.rows: int = data.draw(st.sampled_from((0, 1, 2, 3, 8, 9, 70)))

    def __call__(self, dtype: Any, rows: int | None = None) -> Any:
        return self._data.draw(columns(dtype, self.rows if rows is None else rows))

    def number(self) -> int:
        return int(self._data.draw(_NUMBERS))

    def several(self, dtypes: tuple[Any, ...] = (U8, I32, I64)) -> list[Any]:
        chosen = self._data.draw(st.lists(st.sampled_from(dtypes), max_size=3))
        return [self(dtype) for dtype in chosen]


def _trees(of: Given) -> None:
    tree = _engine.TreeBuilder(of.number() % 9, threads_max=8)
    tree.grow(of.number() % 9, threads_max=8)
    tree.add_flows(of(I32), of(I64), of(U8))
    tree.feed(of(I64), of(I64), of(I32), of(U8), of(I32))
    tree.take_flows()
    tree.feed(of(I64), of(I64), of(I32), of(U8))
    tree.finish()


def _links(of: Given) -> None:
    links = _engine.LinkBuilder(launches_max=of.number())
    for _ in range(3):
        links.feed(of(I64), of(I32), of(U8), of(I32))
        links.skip(of.number())
    links.finish()


def _stored_view(of: Given) -> None:
    tables = {name: of(U8, 256) for name in ("of_kind", "overlaps")}
    view = _engine.StoredView(
        role=of(U8),
        kind=of(U8),
        device_type=of(U8),
        name=of(I32),
        names=of.number(),
        parent=of(I64),
        lasting=of(I64),
        phase=of(U8),
        thread=of(I32),
        **tables,
    )
    view.above()
    view.ops_around(of(I64))
    view.sums(np.resize(of(I64), len(view.work())), of(U8))


def _presence(of: Given) -> None:
    for dtype in (I64, I32, U8, F64):
        absent = float("nan") if dtype is F64 else 1
        column = of(dtype)
        assert _engine.presence(column, absent) in (0, 1, 2)
        assert len(_engine.validity(column, absent)) == (len(column) + 7) // 8


KERNELS: dict[str, Callable[[Given], Any]] = {
    "allowed": lambda of: _engine.allowed([(column, of(U8)) for column in of.several()]),
    "call_paths": lambda of: _engine.call_paths(of(I32), of(U8, 9), of(I64)),
    "call_times": lambda of: _engine.call_times(of(U8), of(I32), of(I64), of(I64), of(I64), of(I64)),
    "compact_codes": lambda of: _engine.compact_codes(of(I32), of.number()),
    "durations": lambda of: _engine.durations(of(I64), of(I64)),
    "fill_nulls": lambda of: _engine.fill_nulls(of(I64), of(U8), of.number(), -1),
    "fill_nulls_32": lambda of: _engine.fill_nulls(of(I32), of(U8, of.rows // 8 + 1), 0, -1),
    "gather": lambda of: _engine.gather(of.several((U8, U8, F64)), of(I64)),
    "gather_64": lambda of: _engine.gather([of(I64), of(I64)], of(I64)),
    "links": _links,
    "match_forward": lambda of: _engine.match_forward(of(I64), of(I64), of(I64), of(I32), of(I64), of(I32)),
    "match_ids": lambda of: _engine.match_ids(of(I64), of(U8), of(I64)),
    "nearest_above": lambda of: _engine.nearest_above(of(I64), of(U8), of(I64)),
    "nest": lambda of: _engine.nest(of(I64), of(I64), of(I32), of(U8)),
    "next_on_thread": lambda of: _engine.next_on_thread(of(I32), of(U8), of(I64), threads_max=100),
    "outermost": lambda of: _engine.outermost(of(I64), of.number(), of(U8), of(I64)),
    "places": lambda of: _engine.places(of(I64), of.number()),
    "presence": _presence,
    "recode": lambda of: _engine.recode(of(I32), of(I32, 3), of(I32)),
    "roles": lambda of: _engine.roles(
        of(U8), of(U8), of(U8), None, tables=of(U8, 512), overlapping_phases=of(U8, 256), host_max=1, overlapping=4
    ),
    "count_pairs": lambda of: _engine.count_pairs(
        of(I32), of.number(), of(I32), of(U8), of(I32), 1, of(I32), of.number(), of(U8)
    ),
    "count_pairs_of_bytes": lambda of: _engine.count_pairs(
        of(I32), of.number(), of(I32), of(U8), of(U8), 1, of(I32), of.number()
    ),
    "sum_stored": lambda of: _engine.sum_stored(
        of(I32), of.number(), of(I32), of(I32), of(I32), of(I64), of(I64), of(U8, 768), of(U8, 256)
    ),
    "subtree_sums": lambda of: _engine.subtree_sums(of(I64), of(I64)),
    "sum_by": lambda of: _engine.sum_by(of(I64), of.number(), of(I64)),
    "sum_groups": lambda of: _engine.sum_groups([(c, of.number()) for c in of.several()], of(U8), [of(I64), of(I64)]),
    "tensor_islands": lambda of: _engine.tensor_islands(of(I32), of(U8), of(I64), of(I64)),
    "stored_view": _stored_view,
    "trees": _trees,
    "typical_of_steps": lambda of: _engine.typical_of_steps(of(I64), of.number(), of(I64), of.number(), of(I64)),
}


@pytest.mark.parametrize("kernel", sorted(KERNELS))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_property_any_columns(kernel: str, data: Any) -> None:
    with contextlib.suppress(TypeError, ValueError):
        KERNELS[kernel](Given(data))
