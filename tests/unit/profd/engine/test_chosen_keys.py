"""Ids and addresses that somebody chose so that they would meet in a table whose hash is known.

Nothing is timed: with a known hash each of these takes minutes instead of some 20 ms (80 000
ids took 1.6 s, and twice as many take four times that).
"""

from __future__ import annotations

import numpy as np
from profd import _engine

COUNT = 300_000
LAUNCH, DEVICE = 16, 32
WORD = 1 << 64


def chosen(count: int, below: int = 1 << 63) -> np.ndarray:
    """Positive numbers of which splitmix64's finaliser, the best known hash of a number, makes multiples of 2^30."""
    value = np.arange(WORD // below * count * 2, dtype=np.uint64) << np.uint64(30)
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        value = _unshifted(value, shift) * np.uint64(pow(factor, -1, WORD))
    found = value.view(np.int64)
    return found[(found > 0) & (found < below)][:count]


def _unshifted(value: np.ndarray, shift: int) -> np.ndarray:
    """What `value ^ value >> shift` was made of."""
    found = value
    for _ in range(64 // shift):
        found = value ^ (found >> np.uint64(shift))
    return found


def test_they_are_chosen_well() -> None:
    value = chosen(1000).view(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        value = (value ^ value >> np.uint64(shift)) * np.uint64(factor)
    assert len(set(value.tolist())) == 1000
    assert not (value % np.uint64(1 << 30)).any()


def test_ids_that_are_matched() -> None:
    ids, rows = chosen(COUNT), np.arange(COUNT)
    assert (_engine.match_ids(ids, np.ones(COUNT, dtype=np.uint8), ids) == rows).all()


def test_values_that_are_grouped() -> None:
    # GIVEN ids less what the hash of the first column is said to add
    values = chosen(COUNT) - np.int64(0x9E3779B97F4A7C15 - WORD)
    group, first = _engine.group_rows([values])
    assert (group == np.arange(COUNT)).all()
    assert (first == group).all()


def test_correlation_ids() -> None:
    ids = np.tile(chosen(COUNT, below=1 << 60) << 3, 2)  # eight neighbours share an entry
    role = np.repeat(np.array([LAUNCH, DEVICE], dtype=np.uint8), COUNT)
    nothing = np.zeros(2 * COUNT, dtype=np.int32)
    linked, _ = _engine.LinkBuilder(launches_max=4 * COUNT).feed(ids, nothing, role, nothing)
    assert (linked[COUNT:] == np.arange(COUNT)).all()


def test_correlation_ids_that_differ_by_what_their_group_adds() -> None:
    group = np.arange(COUNT, dtype=np.int32)
    ids, both = np.tile((np.int64(1) << 58) - (group.astype(np.int64) << 32) << 3, 2), np.tile(group, 2)
    role = np.repeat(np.array([LAUNCH, DEVICE], dtype=np.uint8), COUNT)
    linked, _ = _engine.LinkBuilder(launches_max=4 * COUNT).feed(ids, both, role, np.zeros(2 * COUNT, dtype=np.int32))
    assert (linked[COUNT:] == np.arange(COUNT)).all()


def test_addresses() -> None:
    addresses = chosen(COUNT)
    inputs, process = np.zeros(COUNT, dtype=np.uint8), np.zeros(COUNT, dtype=np.int32)
    assert (_engine.tensor_islands(process, inputs, addresses, addresses) == np.arange(COUNT)).all()


def test_addresses_that_differ_by_what_their_process_adds() -> None:
    process = np.arange(COUNT, dtype=np.int32)
    addresses = (np.int64(1) << 62) ^ (process.astype(np.int64) << 40)
    inputs = np.zeros(COUNT, dtype=np.uint8)
    assert (_engine.tensor_islands(process, inputs, addresses, addresses) == process).all()
