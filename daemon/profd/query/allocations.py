"""Records of memory: which of them are of one block, and the calls and frames around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from profd import _engine
from profd.derive.memory import MEMORY_COLUMNS, MEMORY_NAME, named
from profd.events import NO_CODE, NO_END, NO_ROW, EventTable
from profd.events.table import Array
from profd.query import rules

NOT_RECORDED: Final = "no allocation was recorded: capture with --memory"
NO_ADDRESSES: Final = "allocations were recorded without addresses: which of them were freed is not known"
BLOCK_COLUMNS: Final = tuple(dict.fromkeys((*MEMORY_COLUMNS, "ptr", "kind", "parent", "stack")))


@dataclass(frozen=True, slots=True)
class AllocationRecords:
    """Allocations and frees with an address, in row order."""

    rows: Array  # of the table
    size: Array  # bytes, below 0 where they are freed
    following: Array  # the place of the next record with the same address, or NO_ROW

    def __len__(self) -> int:
        return len(self.rows)


def records_of(table: EventTable) -> AllocationRecords | None:
    """The records of a table, a whole trace or part (rows from 0 on); None: no record has an address.

    A block at an address that is allocated again had been freed, also where that record is missing: it lasts from its
    allocation to the `following` record, whichever that is.
    """
    rows = named(table, MEMORY_NAME)
    size, address = table.column("bytes")[rows], table.column("ptr")[rows]
    known = (size != NO_END) & (size != 0) & (address != NO_END) & (address != 0)
    rows, size, address = rows[known], size[known], address[known]
    if not len(rows):
        return None
    places = [table.column(name)[rows] for name in ("process", "device_type", "device")]
    block, _ = _engine.group_rows([np.ascontiguousarray(column, dtype=np.int64) for column in (*places, address)])
    order = _engine.argsort(block)
    same = block[order][1:] == block[order][:-1]
    following = np.full(len(rows), NO_ROW, dtype=np.int64)
    following[order[:-1][same]] = order[1:][same]
    return AllocationRecords(rows, size, following)


@dataclass(frozen=True, slots=True)
class PathsTo:
    """The paths of calls around some rows and these themselves; a path's caller has a smaller number."""

    path: Array  # of each of the rows
    above: Array  # of each path: that of the caller, or NO_ROW
    name: Array  # of each path: index of `names`, or NO_CODE
    names: list[str]
    kind: Array


def paths_to(table: EventTable, rows: Array) -> PathsTo:
    """All calls of one path are one; a function that calls itself is, too."""
    parent = np.ascontiguousarray(table.column("parent"))
    within = np.zeros(len(table), dtype=np.int64)
    within[rows] = 1
    # Only what is above one of them: most of a trace is not.
    kept = np.flatnonzero(_engine.subtree_sums(within, parent) > 0)
    place = np.full(len(table) + 1, NO_ROW, dtype=np.int64)  # the last answers for NO_ROW
    place[kept] = np.arange(len(kept))
    names, code = rules.shown_names(rules.names_of(table), table.column("name")[kept])
    kind = table.column("kind")[kept]
    key, first = _engine.group_rows([code.astype(np.int64), kind.astype(np.int64)])
    folds = rules.is_kind(kind[first], *rules.FUNCTIONS).view(np.uint8)
    path, above, example, _ = _engine.call_paths(key.astype(np.int32), folds, place[parent[kept]])
    return PathsTo(path[place[rows]], above, code[example], names, kind[example])


def frames_of(table: EventTable, rows: Array) -> Array:
    """Codes of the stack that was recorded with each of these rows, or with the call around it."""
    stack, parent = table.column("stack"), table.column("parent")[rows]
    of_call = np.where(parent == NO_ROW, NO_CODE, stack[parent])
    found: Array = np.where(stack[rows] == NO_CODE, of_call, stack[rows])
    return found
