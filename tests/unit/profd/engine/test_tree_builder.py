from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import _engine

from tests.unit.profd.engine import twins
from tests.unit.profd.engine.twins import DEVICE, FRAME, LAUNCH, NESTS, OP, TIMED, Row

ROLES = [
    NESTS | FRAME | TIMED,
    NESTS | FRAME | TIMED | OP,
    NESTS | FRAME | TIMED | LAUNCH,
    NESTS,
    TIMED,
    TIMED | DEVICE,
    0,
]
TIME = st.integers(0, 15)
ROWS = st.lists(
    st.builds(Row, TIME, TIME | st.just(twins.ABSENT), st.integers(-1, 2), st.sampled_from(ROLES), st.integers(-1, 2)),
    max_size=40,
)
FLOWS = st.lists(st.tuples(st.integers(-1, 2), TIME, st.integers(0, 2)), max_size=15)


def column(values, dtype=np.int64):
    return np.array(values, dtype=dtype)


def build(rows, flows, cuts):
    """(parent, depth, self time, rows of flows, builder) with segments cut at `cuts`."""
    builder = _engine.TreeBuilder(3)
    half = len(flows) // 2
    for part in (flows[:half], flows[half:]):
        builder.add_flows(
            column([flow[0] for flow in part], np.int32),
            column([flow[1] for flow in part]),
            column([flow[2] for flow in part], np.uint8),
        )
    flow_rows: list[int] = []
    flow_depths: list[int] = []

    def take():
        row, depth = builder.take_flows()
        flow_rows.extend(row.tolist())
        flow_depths.extend(depth.tolist())

    parents, depths, self_times = [], [], []
    for low, high in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        part = rows[low:high]
        builder.grow(builder.threads + 1)  # tracks come while rows do
        parent, depth, self_time = builder.feed(
            column([row.start for row in part]),
            column([row.end for row in part]),
            column([row.thread for row in part], np.int32),
            column([row.role for row in part], np.uint8),
            column([row.forward for row in part], np.int32),
        )
        parents += parent.tolist()
        depths += depth.tolist()
        self_times += self_time.tolist()
        take()
    if rows and flows and flows[-1][1] >= rows[-1].start:
        builder.advance(flows[-1][1])
        take()
    late_row, late_self = builder.finish()
    take()
    for row, self_time in zip(late_row.tolist(), late_self.tolist(), strict=True):
        assert self_times[row] == twins.ABSENT
        self_times[row] = self_time
    for row, above in zip(flow_rows, flow_depths, strict=True):
        nests = row >= 0 and rows[row].role & NESTS
        assert above == (depths[row] if nests else -1)
    return parents, depths, self_times, flow_rows, builder


@given(ROWS, FLOWS, st.data())
def test_equals_its_twin_wherever_segments_are_cut(rows, flows, data):
    rows.sort(key=lambda row: row.start)
    flows.sort(key=lambda flow: flow[1])
    # Rows that start together are never cut apart: that is the collator's part.
    places = [i for i in range(1, len(rows)) if rows[i].start != rows[i - 1].start]
    cuts = sorted(data.draw(st.sets(st.sampled_from(places)))) if places else []
    expected = twins.tree(rows, flows)
    parents, depths, self_times, flow_row, builder = build(rows, flows, cuts)
    assert parents == expected.parent
    assert depths == expected.depth
    assert self_times == expected.self_time
    assert flow_row == expected.flow_row
    assert builder.partial_overlap == expected.partial_overlap
    assert builder.no_end == expected.no_end
    assert builder.rows == len(rows)


def test_by_hand():
    rows = [
        Row(0, 100, 0),  # 0
        Row(10, 10, 0),  # 1: zero length: a leaf
        Row(10, 40, 0),  # 2: starts with it, encloses it
        Row(10, 40, 0),  # 3: the same interval, later: inside 2
        Row(20, twins.ABSENT, 0),  # 4: no end: lasts as 3 does
        Row(40, 60, 0),  # 5: starts where 2 to 4 end: a sibling of 2
        Row(50, 70, 0),  # 6: overlaps 5: a child that closes with it
        Row(65, 80, 0),  # 7: within 6 as recorded, but that is closed
        Row(90, 85, 0),  # 8: ends before it starts: a leaf
        Row(120, 130, 0),  # 9: a root
    ]
    parents, depths, self_times, _, builder = build(rows, [], [])
    assert parents == [-1, 3, 0, 2, 3, 0, 5, 0, 0, -1]
    assert depths == [0, 3, 1, 2, 3, 1, 2, 1, 1, 0]
    assert self_times == [100 - 30 - 20 - 15, 0, 0, 10, 20, 10, 20, 15, 0, 10]
    assert (builder.partial_overlap, builder.no_end) == (1, 1)


def test_flows_prefer_what_starts_with_them():
    op, call = NESTS | FRAME | TIMED | OP, NESTS | FRAME | TIMED | LAUNCH
    rows = [
        Row(0, 50, 0, op),
        Row(10, 40, 0, op),
        Row(10, 30, 0, op),
        Row(10, 20, 0, call),
        Row(10, 10, 0, call),
        Row(10, 15, 1, TIMED | DEVICE),
    ]
    flows = [(0, 10, 0), (0, 10, 1), (0, 10, 2), (0, 25, 1), (1, 12, 2), (1, 20, 2), (0, 50, 1), (0, 51, 1)]
    flows.sort(key=lambda flow: flow[1])
    _, _, _, flow_row, _ = build(rows, flows, [])
    assert dict(zip(flows, flow_row, strict=True)) == {
        (0, 10, 0): 4,
        (0, 10, 1): 2,  # the innermost op
        (0, 10, 2): 3,  # the longest call: others take no time
        (0, 25, 1): 2,
        (1, 12, 2): 5,
        (1, 20, 2): -1,
        (0, 50, 1): 0,
        (0, 51, 1): -1,
    }


def test_a_hundred_thousand_levels():
    depth = 100_000
    rows = np.arange(depth, dtype=np.int64)
    builder = _engine.TreeBuilder(1)
    role = np.full(depth, NESTS | FRAME | TIMED, dtype=np.uint8)
    parent, levels, self_time = builder.feed(rows, 2 * depth - rows, np.zeros(depth, np.int32), role)
    assert (parent == rows - 1).all()
    assert (levels == rows).all()
    late_row, late_self = builder.finish()
    self_time[late_row] = late_self
    assert (self_time[:-1] == 2).all()


def test_extremes_of_int64():
    low, high = -(2**63) + 1, 2**63 - 1
    parents, _, self_times, _, _ = build([Row(low, high - 1, 0), Row(0, 5, 0), Row(high - 2, high - 1, 0)], [], [])
    assert parents == [-1, 0, 0]
    assert self_times[1:] == [5, 1]
    assert self_times[0] == high - 6  # saturated before the children were taken away


I64, I32, U8 = column([0, 0]), column([0, 0], np.int32), column([1, 1], np.uint8)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((I64, I64[:1], I32, U8), "end has 1"),
        ((I64, I64, I32[:1], U8), "thread has 1"),
        ((I64, I64, I32, U8[:1]), "role has 1"),
        ((I64, I64, I32 + 1, U8), "thread that is not there"),
        ((column([1, 0]), I64, I32, U8), "start order"),
        ((I64 - 10, I64, I32, U8), "start order"),
    ],
)
def test_a_malformed_segment_changes_nothing(arrays, message):
    builder = _engine.TreeBuilder(1)
    builder.feed(I64, I64, I32, U8)
    with pytest.raises(ValueError, match=message):
        builder.feed(*arrays)
    assert builder.rows == 2
    builder.finish()
    with pytest.raises(ValueError, match="finished"):
        builder.feed(I64, I64, I32, U8)
    with pytest.raises(ValueError, match="finished"):
        builder.finish()
    with pytest.raises(ValueError, match="finished"):
        builder.advance(5)


def test_time_does_not_go_back():
    builder = _engine.TreeBuilder(1)
    builder.advance(5)
    with pytest.raises(ValueError, match="start later"):
        builder.advance(4)
    with pytest.raises(ValueError, match="start order"):
        builder.feed(I64, I64, I32, U8)


@pytest.mark.parametrize(
    ("flows", "message"),
    [
        ((I32 + 1, I64, U8), "not there"),
        ((I32, column([1, 0]), U8), "time order"),
        ((I32, I64 - 10, U8), "time order"),
        ((I32[:1], I64, U8), "thread has 1"),
        ((I32, I64, U8[:1]), "want has 1"),
    ],
)
def test_malformed_flows(flows, message):
    builder = _engine.TreeBuilder(1)
    builder.add_flows(I32, I64, U8)
    with pytest.raises(ValueError, match=message):
        builder.add_flows(*flows)
    builder.finish()
    assert builder.take_flows()[0].tolist() == [-1, -1]
    assert builder.take_flows()[0].tolist() == []
    with pytest.raises(ValueError, match="finished"):
        builder.add_flows(I32, I64, U8)


@pytest.mark.parametrize("threads", [-1, 2**40])
def test_impossible_numbers_of_threads(threads):
    with pytest.raises(ValueError, match="number of threads"):
        _engine.TreeBuilder(threads)
    with pytest.raises(ValueError, match="number of threads"):
        _engine.TreeBuilder(0).grow(threads)


def test_wrong_dtypes():
    with pytest.raises(TypeError):
        _engine.TreeBuilder(1).feed(I64, I64, I64, U8)
    with pytest.raises(TypeError):
        _engine.TreeBuilder(1).add_flows(I64, I64, U8)
