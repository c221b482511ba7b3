"""Which inputs of ops and which allocations are the same tensor.

An op's input names a TensorImpl and the storage it had then, an allocation names
the address of a storage. A storage is told by its address from its allocation (or
first use) to its free; tensors that shared a storage, and storages that a tensor
had one after the other, are one island with one number. Sources that do not carry
pointers (Kineto's JSON) have no tensors: docs/reference-map.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from profd import _engine
from profd.derive.memory import MEMORY_NAME, named
from profd.events import NO_END, EventTable
from profd.events.table import Array

TENSOR_COLUMNS: Final = ("name", "start", "process", "bytes", "ptr")
TENSOR_ARGS: Final = ("impl_ptrs", "storage_ptrs")
NOT_AN_INPUT: Final = -1
_INPUT, _ALLOCATE, _FREE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Tensors:
    """A row per input of an op and per allocation or free, in the order of the events."""

    row: Array  # of the event, in the table
    position: Array  # among the tensors of the op's inputs; NOT_AN_INPUT of an allocation
    impl: Array  # address, 0: undefined, or not known
    storage: Array
    tensor: Array  # number from 0 in the order of first use; -1: undefined, or memory that is no tensor's


def find_tensors(table: EventTable) -> Tensors:
    """The tensors of a whole trace, whose table has TENSOR_COLUMNS and TENSOR_ARGS."""
    row, position, impl, storage = _inputs(table)
    memory = named(table, MEMORY_NAME)
    memory = memory[(table.column("ptr")[memory] != NO_END) & (table.column("bytes")[memory] != NO_END)]
    freed = table.column("bytes")[memory] < 0
    rows = np.concatenate([row, memory])
    order = _engine.argsort(rows)
    rows = rows[order]
    action = np.concatenate([np.full(len(row), _INPUT), np.where(freed, _FREE, _ALLOCATE)]).astype(np.uint8)[order]
    impl = np.concatenate([impl, np.zeros(len(memory), dtype=np.int64)])[order]
    storage = np.concatenate([storage, table.column("ptr")[memory]])[order]
    position = np.concatenate([position, np.full(len(memory), NOT_AN_INPUT)])[order]
    process = np.ascontiguousarray(table.column("process")[rows])
    return Tensors(rows, position, impl, storage, _engine.tensor_islands(process, action, impl, storage))


def _inputs(table: EventTable) -> tuple[Array, Array, Array, Array]:
    """(row, position, impl, storage) of each input that has both addresses recorded."""
    none = np.empty(0, dtype=np.int64)
    impls, storages = (table.args.get((key, "ints")) for key in TENSOR_ARGS)
    if impls is None or storages is None:
        return none, none, none, none
    if not np.array_equal(impls.rows, storages.rows):
        # Rows where one of the two lists is shorter say nothing: which belongs to which is not known.
        impls_n, storages_n = (np.bincount(arg.rows, minlength=len(table)) for arg in (impls, storages))
        whole = impls_n == storages_n
        kept, same = whole[impls.rows], whole[storages.rows]
        rows, impl, storage = impls.rows[kept], impls.values[kept], storages.values[same]
    else:
        rows, impl, storage = impls.rows, impls.values, storages.values
    first = np.searchsorted(rows, rows)
    return rows, np.arange(len(rows)) - first, impl, storage
