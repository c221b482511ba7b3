"""Islands of tensors: by hand, where torch's greedy merge splits one, and against connected components."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profd import _engine

INPUT, ALLOCATE, FREE = range(3)
A, B, C = 100, 200, 300  # impls
X, Y, Z = 11, 22, 33  # addresses of storages
Record = tuple[int, int, int, int]  # process, action, impl, storage


def islands(records: list[Record]) -> list[int]:
    columns = list(zip(*records, strict=True)) if records else [(), (), (), ()]
    types = (np.int32, np.uint8, np.int64, np.int64)
    arrays = [np.array(column, dtype=dtype) for column, dtype in zip(columns, types, strict=True)]
    found: list[int] = _engine.tensor_islands(*arrays).tolist()
    return found


def storages(records: list[Record]) -> list[int | None]:
    """Which storage each record speaks of: an address from its first record to its free."""
    live: dict[tuple[int, int], int] = {}
    count = 0
    found: list[int | None] = []
    for process, action, impl, storage in records:
        if storage == 0 or (action == INPUT and impl == 0):
            found.append(None)
            continue
        if (process, storage) not in live:
            live[process, storage] = count
            count += 1
        found.append(live[process, storage])
        if action == FREE:
            del live[process, storage]
    return found


def twin(records: list[Record]) -> list[int]:
    """Connected components by colouring until nothing changes."""
    of = storages(records)
    used = {at for at, record in zip(of, records, strict=True) if at is not None and record[1] == INPUT}
    colour = {at: at for at in used}
    changed = True
    while changed:
        changed = False
        for a, first in zip(of, records, strict=True):
            for b, second in zip(of, records, strict=True):
                if a is None or b is None or not first[1] == second[1] == INPUT:
                    continue
                if (first[0], first[2]) == (second[0], second[2]) and colour[a] > colour[b]:
                    colour[a] = colour[b]
                    changed = True
    numbers = {root: number for number, root in enumerate(sorted(set(colour.values())))}
    return [numbers[colour[at]] if at in colour else -1 for at in of]


def torchs(records: list[Record]) -> list[int]:
    """What collection.cpp does: sorted pairs of storages, each given the number of the one it meets first."""
    of = storages(records)
    first: dict[tuple[int, int], int] = {}
    pairs = set()
    for at, (process, action, impl, _) in zip(of, records, strict=True):
        if action == INPUT and at is not None:
            other = first.setdefault((process, impl), at)
            pairs.add((min(other, at), max(other, at)))
    number: dict[int, int] = {}
    next_number = 0
    for low, high in sorted(pairs):
        if low not in number:
            number[low] = next_number
            next_number += 1
        number.setdefault(high, number[low])
    return [number.get(at, -1) if at is not None else -1 for at in of]


def test_views_share_a_storage_and_addresses_are_used_again():
    records = [
        (1, ALLOCATE, 0, X),
        (1, INPUT, A, X),
        (1, INPUT, B, X),  # a view
        (1, FREE, 0, X),
        (1, ALLOCATE, 0, X),  # another storage at the same address
        (1, INPUT, C, X),
        (2, INPUT, C, X),  # another process
        (1, ALLOCATE, 0, Y),  # no op was ever given it
        (1, INPUT, 0, Z),  # undefined
        (1, INPUT, A, 0),
    ]
    assert islands(records) == [0, 0, 0, 0, 1, 1, 2, -1, -1, -1]
    assert torchs([record for record in records if record[0] == 1]) == [0, 0, 0, 0, 1, 1, -1, -1, -1]


def test_a_tensor_whose_storage_changed_is_one_island():
    assert islands([(1, INPUT, A, X), (1, INPUT, B, Y), (1, INPUT, A, Y)]) == [0, 0, 0]


def test_where_the_greedy_merge_splits_an_island():
    # A had X and then Z, B had Y and then Z: all three are one island. The pairs are (X, Z) and (Y, Z). The
    # greedy merge gives X and Z number 0, then Y a new one, since it looks at the first of a pair only.
    records = [(1, INPUT, A, X), (1, INPUT, B, Y), (1, INPUT, A, Z), (1, INPUT, B, Z)]
    assert torchs(records) == [0, 1, 0, 0]
    assert islands(records) == [0, 0, 0, 0]


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 2), st.integers(0, 3), st.integers(0, 4)), max_size=14))
def test_islands_equal_their_twin(records):
    assert islands(records) == twin(records)


def test_a_long_chain_of_storages_takes_linear_time():
    count = 100_000
    impl = np.repeat(np.arange(1, count + 1), 2)
    storage = np.arange(1, 2 * count + 1) - impl + 1  # each impl has its own storage and the next one's
    arrays = np.ones(2 * count, np.int32), np.zeros(2 * count, np.uint8), impl[::-1].copy(), storage[::-1].copy()
    assert (_engine.tensor_islands(*arrays) == 0).all()


def test_malformed_columns():
    one = np.ones(1, np.int64)
    with pytest.raises(ValueError, match="unknown"):
        _engine.tensor_islands(np.ones(1, np.int32), np.full(1, 3, np.uint8), one, one)
    with pytest.raises(ValueError, match="impl has 1"):
        _engine.tensor_islands(np.ones(2, np.int32), np.ones(2, np.uint8), one, one)
