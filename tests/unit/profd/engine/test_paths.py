"""Paths of calls and outermost calls against definitions: each row climbs to its root, and nothing is shared."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import _engine

PERIOD_MAX = 8
I64, I32, U8 = np.zeros(3, np.int64), np.zeros(3, np.int32), np.zeros(3, np.uint8)


@st.composite
def forests(draw: st.DrawFn, keys: int = 3) -> tuple[list[int], list[int]]:
    """(key, parent) of rows in any order."""
    count = draw(st.integers(0, 40))
    chain = draw(st.booleans())  # deep ones, too
    parent = [draw(st.integers(max(at - 2, -1) if chain else -1, at - 1)) for at in range(count)]
    key = [draw(st.integers(0, keys - 1)) for _ in range(count)]
    place = draw(st.permutations(range(count)))
    order = sorted(range(count), key=place.__getitem__)
    return [key[at] for at in order], [place[parent[at]] if parent[at] >= 0 else -1 for at in order]


def chain(parent: list[int], row: int) -> list[int]:
    """A row and all above it, from the root down."""
    rows = []
    while row >= 0:
        rows.append(row)
        row = parent[row]
    return rows[::-1]


def folded(keys: list[int], folds: list[bool]) -> tuple[int, ...]:
    """The keys without repeated ends, taken away as each key comes."""
    path: list[int] = []
    for key in keys:
        path.append(key)
        for period in range(1, PERIOD_MAX + 1):
            end = path[-2 * period :]
            if len(end) == 2 * period and end[:period] == end[period:] and all(folds[one] for one in end):
                del path[-period:]
                break
    return tuple(path)


@given(forests(), st.lists(st.booleans(), min_size=3, max_size=3))
def test_paths_are_what_climbing_tells(forest: tuple[list[int], list[int]], folds: list[bool]) -> None:
    key, parent = forest
    path, above, first, outermost = _engine.call_paths(
        np.array(key, dtype=np.int32), np.array(folds, dtype=np.uint8), np.array(parent, dtype=np.int64)
    )
    want = [folded([key[at] for at in chain(parent, row)], folds) for row in range(len(key))]
    words = {number: want[row] for row, number in enumerate(path.tolist())}
    assert [words[number] for number in path.tolist()] == want
    assert len(words) == len(set(words.values())) == len(above) == len(first)
    assert all(words[number][:-1] == (words[up] if up >= 0 else ()) for number, up in enumerate(above.tolist()))
    assert all(path[row] == number for number, row in enumerate(first.tolist()))
    assert outermost.astype(bool).tolist() == [
        want[row] not in [want[at] for at in chain(parent, row)[:-1]] for row in range(len(key))
    ]


@given(forests(), st.data())
def test_outermost_calls_are_what_climbing_tells(forest: tuple[list[int], list[int]], data: st.DataObject) -> None:
    group, parent = forest
    among = data.draw(st.lists(st.booleans(), min_size=len(group), max_size=len(group)))
    found = _engine.outermost(
        np.array(group, dtype=np.int64), 3, np.array(among, dtype=np.uint8), np.array(parent, dtype=np.int64)
    )
    assert found.astype(bool).tolist() == [
        not among[row] or group[row] not in [group[at] for at in chain(parent, row)[:-1] if among[at]]
        for row in range(len(group))
    ]


@pytest.mark.parametrize(("circle", "paths"), [(1, 1), (2, 3), (8, 15), (9, 100_000)])
def test_recursion_makes_no_path_per_level(circle: int, paths: int) -> None:
    """Of circles longer than 8 every level is kept, and nothing overflows."""
    rows = np.arange(100_000, dtype=np.int64)
    key = (rows % circle).astype(np.int32)
    path, _, _, outermost = _engine.call_paths(key, np.ones(circle, dtype=np.uint8), rows - 1)
    assert path.max() + 1 == paths
    assert outermost.sum() == paths


def test_circles_of_parents_end() -> None:
    """Each row on one, and below one, is a path of its own key."""
    key, folds = np.array([0, 1, 0, 1], dtype=np.int32), np.zeros(2, dtype=np.uint8)
    for parent in ([1, 0, 0, 2], [0, 0, 1, 2], [1, 2, 3, 0]):
        path, above, _, _ = _engine.call_paths(key, folds, np.array(parent))
        assert path.tolist() == [0, 1, 0, 1]
        assert above.tolist() == [-1, -1]
        group = key.astype(np.int64)
        assert _engine.outermost(group, 2, np.ones(4, dtype=np.uint8), np.array(parent)).all()


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: _engine.call_paths(I32, U8, I64 + 3), "beyond the last row"),
        (lambda: _engine.call_paths(I32 + 3, U8, I64 - 1), "key is out of range"),
        (lambda: _engine.call_paths(I32[:1], U8, I64), "key has 1"),
        (lambda: _engine.outermost(I64, 1, U8, I64 + 3), "beyond the last row"),
        (lambda: _engine.outermost(I64 + 1, 1, U8 + 1, I64 - 1), "group is out of range"),
        (lambda: _engine.outermost(I64, -1, U8, I64 - 1), "too many groups"),
    ],
)
def test_malformed_columns_are_refused(call: Callable[[], object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        call()
