"""Calls of the host that detectors ask about, gathered a segment at a time: 48 bytes each."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from profd.answers.ranks.names import is_on_host
from profd.answers.spans import Spans
from profd.events import NO_CODE, NO_ROW, EventTable, Kind
from profd.events.table import Array
from profd.query import rules
from profd.query.view import durations

CLIMB_MAX: Final = 64  # calls around a call that are looked at for whom it worked
CALLS: Final = (Kind.RUNTIME, Kind.DRIVER)
_HOST: Final = (Kind.CPU_OP, Kind.USER_ANNOTATION, Kind.PYTHON_FUNCTION, *CALLS)


class Call(IntEnum):
    """What a call of the host is to a detector."""

    LOADS = 1  # fetches the next batch from a DataLoader
    WAITS = 2  # for a device: the host stands still
    CASTS = 3  # copies a tensor to another type or device
    ALLOCATES = 4  # memory of a device from its driver, or gives it back
    COMPILES = 5  # a frame, by Dynamo
    COLLECTS = 6  # garbage, because the program asked for it, or by itself
    UPDATES = 7  # parameters: a whole optimizer step
    UPDATES_ONE = 8  # a part of one parameter's update, as an optimizer's loop calls it
    COMPILES_JIT = 9  # a function, by XLA for JAX
    COMPILES_PART = 10  # of such a function: a pass, or what generates code
    COPIES = 11  # memory, from or to a device or within
    ASKS = 12  # for a collective, as the program's thread does
    TALKS = 13  # is a collective, as a thread of gloo or MPI carries it out


# The end of a name comes first: behind it each place is tried once, whatever the name's length.
waits_for_device: Final = re.compile(r"(?=\w+\Z)(cuda|hip|cuCtx|cuStream|cuEvent)\w*Synchronize(_\w+)?\Z").match
"""Whether a call of this name stands still until its device has done something."""

_NAMES: Final[dict[Call, Callable[[str], object]]] = {
    Call.LOADS: re.compile(r"enumerate\(DataLoader\)#\w*\.__next__").match,
    Call.WAITS: waits_for_device,
    Call.CASTS: re.compile(r"aten::_to_copy\Z").match,
    Call.ALLOCATES: re.compile(r"(cuda|hip)(Malloc|Free|HostAlloc|HostFree|FreeHost|MallocHost)(_\w+)?\Z").match,
    Call.COMPILES: re.compile(r"_compile\.compile_inner \(dynamo_timed\)\Z").match,
    Call.ASKS: re.compile(r"c10d::\w+\Z").match,
    Call.TALKS: is_on_host,
    Call.COPIES: re.compile(r"(cuda|hip|cu)Memcpy\w*\Z").match,
    Call.COLLECTS: re.compile(r"((<built-in (function|method) |gc\.)collect>?|gc: generation \d)\Z").match,
    Call.UPDATES: re.compile(r"Optimizer\.step#").match,
    Call.COMPILES_JIT: re.compile(r"backend_compile_and_load\Z").match,
    Call.COMPILES_PART: re.compile(
        r"(.* \(jit_\w+\)|PjRt\w*Client::Compile\w*|\w*Compiler::\w+|ThunkEmitter::\w+|TaskDispatcher::dispatch)\Z"
    ).match,
    Call.UPDATES_ONE: re.compile(r"aten::(add|mul|addcmul|addcdiv|lerp|sub|div)_\Z").match,
}
_KINDS: Final = {
    **dict.fromkeys((Call.WAITS, Call.ALLOCATES, Call.COPIES), CALLS),
    Call.COLLECTS: (Kind.PYTHON_FUNCTION, Kind.USER_ANNOTATION),
}
_FOR_WHOM: Final = {
    **dict.fromkeys((Call.WAITS, Call.ALLOCATES, Call.COPIES, Call.COMPILES_JIT), CLIMB_MAX),
    Call.UPDATES_ONE: 2,
}
"""An operator calls these: which, and so many calls around them are looked at."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of one sort in start order."""

    row: Array  # of the trace
    start: Array  # ns
    end: Array
    thread: Array  # track numbers
    name: Array  # codes
    op: Array  # code of the outermost `aten::` or `PjitFunction` right around it; NO_CODE: none, or not kept
    function: Array  # code of the innermost Python function around it; NO_CODE: none was recorded, or not kept

    def __len__(self) -> int:
        return len(self.row)

    def take(self, at: Array) -> Calls:
        """The calls at these places."""
        return Calls(*(getattr(self, name)[at] for name in self.__slots__))

    @property
    def spans(self) -> Spans:
        """When at least one of them was on."""
        return Spans.union(self.start, self.end)

    def longest(self, among: Array | None = None) -> list[int]:
        """Rows by how long they took, the longest first; by `among` instead where it is given."""
        weight = self.end - self.start if among is None else among
        rows: list[int] = self.row[np.argsort(-weight, kind="stable")].tolist()
        return rows


class CallsGathered:
    """Fed with tables in start order, which have name, kind, start, end, thread and parent.

    `left_out`: tracks whose calls are not the program's.
    """

    def __init__(self, left_out: frozenset[int] = frozenset()) -> None:
        self._left_out = np.array(sorted(left_out), dtype=np.int32)
        self._sort_of_name = np.zeros(0, dtype=np.uint8)
        self._operator = rules.Named(lambda name: name.startswith(("aten::", "PjitFunction(")))
        self._parts: dict[Call, list[tuple[Array, ...]]] = {call: [] for call in Call}
        self.rows = 0  # that are held

    def add(self, table: EventTable) -> None:
        """Take in the next stretch of the trace."""
        sort = self._sorts(table)
        rows = np.flatnonzero(sort)
        if not len(rows):
            return
        kinds = table.column("kind")
        rows = rows[rules.is_kind(kinds[rows], *_HOST)]
        if len(self._left_out):
            rows = rows[~np.isin(table.column("thread")[rows], self._left_out)]
        start, lasting = table.columns["start"], durations(table)
        for call in np.unique(sort[rows]).tolist():
            chosen = rows[sort[rows] == call]
            if call in _KINDS:
                chosen = chosen[rules.is_kind(kinds[chosen], *_KINDS[Call(call)])]
            self.rows += len(chosen)
            op, function = self._for_whom(table, chosen, _FOR_WHOM.get(Call(call), 0))
            end = start[chosen] + lasting[chosen]
            thread, name = (table.column(column)[chosen] for column in ("thread", "name"))
            self._parts[Call(call)].append((chosen + table.first_row, start[chosen], end, thread, name, op, function))

    def calls(self, call: Call) -> Calls:
        """All of one sort."""
        return Calls(*joined(self._parts[call], len(Calls.__slots__)))

    def _sorts(self, table: EventTable) -> Array:
        """Of each row, the Call that its name says; 0: none."""
        new = rules.names_of(table)[len(self._sort_of_name) :]
        self._sort_of_name = np.append(self._sort_of_name, np.array([_sort(name) for name in new], dtype=np.uint8))
        found: Array = np.append(self._sort_of_name, np.uint8(0))[table.column("name")]  # the last answers for NO_CODE
        return found

    def _for_whom(self, table: EventTable, rows: Array, levels: int) -> tuple[Array, Array]:
        """The operators and functions around calls, as far as they began in the same segment."""
        op = np.full(len(rows), NO_CODE, dtype=np.int32)
        function = op
        if not levels:
            return op, function
        parent, name, kind = table.column("parent"), table.column("name"), table.column("kind")
        is_op = self._operator.of(table)
        at, around = rows, np.ones(len(rows), dtype=bool)
        for _ in range(levels):
            above = np.where(at == NO_ROW, NO_ROW, parent[at])
            at = np.where(above >= table.first_row, above - table.first_row, NO_ROW)
            there = at != NO_ROW
            if not there.any():
                break
            around &= there & is_op[at]
            op = np.where(around, name[at], op)
            is_function = there & (kind[at] == Kind.PYTHON_FUNCTION) & (function == NO_CODE)
            function = np.where(is_function, name[at], function)
        return op, function


def _sort(name: str) -> int:
    return next((call for call, fits in _NAMES.items() if fits(name)), 0)


def joined(parts: list[tuple[Array, ...]], fields: int) -> tuple[Array, ...]:
    """Arrays of several stretches, field by field."""
    if not parts:
        return (np.zeros(0, dtype=np.int64),) * fields
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))
