"""Tensors of a table: inputs by address, allocations, lists of unequal length."""

from __future__ import annotations

import numpy as np
from profd.derive.tensors import NOT_AN_INPUT, TENSOR_ARGS, TENSOR_COLUMNS, find_tensors
from profd.events import ArgColumn, EventTable, Kind
from profd.segments.reader import TraceReader

from tests.support.tables import Event, store, table_of

X, Y = 0x1000, 0x2000


def memory(start: int, size: int, address: int) -> Event:
    return Event("[memory]", start, start, Kind.MEMORY, fields={"bytes": size, "ptr": address, "process": 0})


def op(name: str, start: int) -> Event:
    return Event(name, start, start + 5, fields={"process": 0})


def lists(table: EventTable, impls: dict[int, list[int]], storages: dict[int, list[int]]) -> EventTable:
    for key, rows in zip(TENSOR_ARGS, (impls, storages), strict=True):
        at = [row for row, values in rows.items() for _ in values]
        values = [value for row in rows.values() for value in row]
        table.args[key, "ints"] = ArgColumn("ints", np.array(at, dtype=np.int64), np.array(values, dtype=np.int64))
    return table


def trace() -> EventTable:
    table = table_of(
        [memory(0, 64, X), op("mul", 10), memory(20, -64, X), memory(30, 64, X), op("add", 40), op("t", 50)]
    )
    return lists(table, {1: [7, 0, 8], 4: [9], 5: [1, 2]}, {1: [X, 0, X], 4: [X], 5: [Y]})


def test_inputs_and_allocations_by_hand() -> None:
    found = find_tensors(trace())
    assert found.row.tolist() == [0, 1, 1, 1, 2, 3, 4]  # row 5 has lists that do not fit each other
    assert found.position.tolist() == [NOT_AN_INPUT, 0, 1, 2, NOT_AN_INPUT, NOT_AN_INPUT, 0]
    assert found.tensor.tolist() == [0, 0, -1, 0, 0, 1, 1]


def test_a_stored_trace_has_the_same(tmp_path) -> None:
    reader = TraceReader(store(trace(), tmp_path / "t"))
    found = find_tensors(reader.read(TENSOR_COLUMNS, args=TENSOR_ARGS))
    assert found.tensor.tolist() == [0, 0, -1, 0, 0, 1, 1]


def test_no_pointers_no_tensors() -> None:
    assert find_tensors(table_of([op("mul", 1)])).tensor.tolist() == []
    assert find_tensors(table_of([])).tensor.tolist() == []
