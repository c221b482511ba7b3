from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import _engine

from tests.unit.profd.engine import twins
from tests.unit.profd.engine.twins import DEVICE, LAUNCH, MUST_LAUNCH, MUST_LINK

ROW = st.tuples(
    st.sampled_from([twins.ABSENT, 0, 1, 2, 3, 2**32 - 1]),
    st.integers(0, 1),
    st.sampled_from([0, LAUNCH, LAUNCH | MUST_LAUNCH, DEVICE, DEVICE | MUST_LINK]),
)


def build(rows, cuts=(), launches_max=1 << 22):
    """(linked, depth, builder); the depth of row i, before it is linked, is i."""
    builder = _engine.LinkBuilder(launches_max=launches_max)
    linked, depth = [], []
    for low, high in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        part = rows[low:high]
        if not any(row[2] & (LAUNCH | DEVICE) for row in part):
            builder.skip(len(part))
            linked += [-1] * len(part)
            depth += range(low, high)
            continue
        links, depths = builder.feed(
            np.array([row[0] for row in part], dtype=np.int64),
            np.array([row[1] for row in part], dtype=np.int32),
            np.array([row[2] for row in part], dtype=np.uint8),
            np.arange(low, high, dtype=np.int32),
        )
        linked += links.tolist()
        depth += depths.tolist()
    for row, launch, below in zip(*(array.tolist() for array in builder.finish()), strict=True):
        assert linked[row] == -1
        linked[row], depth[row] = launch, below
    return linked, depth, builder


@given(st.lists(ROW, max_size=40), st.data())
def test_equals_its_twin_wherever_segments_are_cut(rows, data):
    cuts = sorted(data.draw(st.sets(st.integers(0, len(rows)))))
    linked, depth, builder = build(rows, cuts)
    expected = twins.links(rows)
    assert linked == expected
    assert depth == [i if launch < 0 else launch + 1 for i, launch in enumerate(expected)]
    alone = sum(bool(row[2] & MUST_LINK) and launch < 0 for row, launch in zip(rows, expected, strict=True))
    assert builder.device_without_launch == alone
    barren = sum(bool(row[2] & MUST_LAUNCH) and i not in expected for i, row in enumerate(rows))
    assert builder.launch_without_device == barren
    assert builder.forgotten == 0


def test_ids_are_used_again():
    rows = [(7, 0, LAUNCH), (7, 0, DEVICE), (7, 0, LAUNCH), (7, 0, DEVICE), (7, 0, DEVICE), (7, 1, DEVICE)]
    linked, _, builder = build(rows)
    assert linked == [-1, 0, -1, 2, 2, -1]
    assert builder.correlation_reused == 1


def test_old_launches_are_forgotten_and_counted():
    launches = [(i + 1, 0, LAUNCH | MUST_LAUNCH) for i in range(100)]
    linked, _, builder = build([*launches, (1, 0, DEVICE | MUST_LINK), (100, 0, DEVICE | MUST_LINK)], launches_max=20)
    assert linked[-2:] == [-1, 99]
    assert builder.forgotten >= 80
    assert builder.device_without_launch == 1
    assert builder.launch_without_device == 99


def test_many_ids():
    count = 20_000
    rows = [(i * 7919 + 1, 0, LAUNCH) for i in range(count)] + [(i * 7919 + 1, 0, DEVICE) for i in range(count)]
    linked, _, _ = build(rows, [count // 2, count])
    assert linked[count:] == list(range(count))


I64, I32, U8 = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int32), np.zeros(2, dtype=np.uint8)


@pytest.mark.parametrize(
    "arrays", [(I64, I32[:1], U8, I32), (I64, I32, U8[:1], I32), (I64, I32, U8, I32[:1]), (I64[:1], I32, U8, I32)]
)
def test_malformed_columns(arrays):
    with pytest.raises(ValueError, match="has"):
        _engine.LinkBuilder().feed(*arrays)
    with pytest.raises(TypeError):
        _engine.LinkBuilder().feed(I64, I64, U8, I32)  # type: ignore[arg-type]


def test_room_for_nothing():
    with pytest.raises(ValueError, match="at least 2"):
        _engine.LinkBuilder(launches_max=1)
