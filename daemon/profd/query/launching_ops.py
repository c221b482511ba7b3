"""Which operators launch device work, in a trace of any number of events, as torch's view of all at once has it.

Calls of a thread that do not overlap in time are nested apart from each other. They are therefore taken in turn, those
that overlap together, as soon as nothing can come that overlaps them, too. Device work is gathered before: it may come
long after the call that launched it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from profd import _engine
from profd.errors import Exhausted
from profd.events import NO_ROW, EventTable, Kind
from profd.events.table import Array
from profd.limits import DEVICE_WORK_MAX, OPERATORS_ROWS_MAX, QUERY_ROWS_MAX
from profd.query import rules, view
from profd.query.apart import apart
from profd.query.averages import Average, Grouping, averages, nodes_of, summed
from profd.query.covered import reached
from profd.query.own import own_tracks
from profd.query.part import places_of, rows_on
from profd.query.roles import COSTS, NESTS, OWNER, having, roles_of
from profd.segments.join import join
from profd.segments.reader import TraceReader

_WORK_COLUMNS: Final = (*view.COLUMNS, *view.DEVICE_COLUMNS, "correlation")
_TOGETHER: Final = 1 << 21  # rows, some 300 bytes each in a worker


def launching_ops(reader: TraceReader) -> list[Average]:
    """The rows of `averages_of_trace` for the CPU, of which times of devices and counts tell.

    Exhausted where more calls overlap, or more device work is there, than can be held, and where it would take long.
    """
    if len(reader) > OPERATORS_ROWS_MAX:
        raise Exhausted(f"the trace has more than {OPERATORS_ROWS_MAX:,} events, which would take more than a minute")
    own = own_tracks(reader.meta)
    left_out = rows_on(reader, own) if own else None
    work = _gathered(reader, left_out)
    grouping = Grouping(nodes=nodes_of(reader.tracks))
    found: dict[tuple[object, ...], Average] = {}
    for table in _complete(reader, left_out):
        calls = view.torch_calls(table, launched=work.launched)
        calls.counted[apart(table, reader.meta, work.has_operators)] = False
        for row in averages(table, grouping=grouping, calls=calls):
            key = (row.name, row.annotation, row.node_id)
            known = found.get(key)
            found[key] = row if known is None else summed(known, row)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class _Sums:
    """Times of device work in ns, added up by a number; numbers ascend, and each is there once."""

    number: Array
    ns: Array

    @classmethod
    def of(cls, number: Array, ns: Array) -> _Sums:
        """By these numbers."""
        numbers, group = np.unique(number, return_inverse=True)
        return cls(numbers, _engine.sum_by(group.astype(np.int64), len(numbers), np.ascontiguousarray(ns)))

    def within(self, first: int, last: int) -> _Sums:
        """Sums of the numbers from `first` to `last`."""
        some = slice(*np.searchsorted(self.number, (first, last + 1)).tolist())
        return _Sums(self.number[some], self.ns[some])


@dataclass(frozen=True, slots=True)
class _Work:
    """The device work of a trace that costs an operator time."""

    by_id: _Sums  # of an operator's external id, which no other has
    by_launch: _Sums  # of the row that launched it
    has_operators: bool

    def launched(self, table: EventTable, role: Array, parent: Array | None) -> Array:
        """Device time in ns that each row launched itself; the table has `row`. `parent` as in `ops_around`."""
        total = np.zeros(len(table), dtype=np.int64)
        row = table.columns["row"]
        if not len(row):
            return total
        if len(self.by_id.number):
            owners = np.flatnonzero(having(role, OWNER))
            place = places_of(self.by_id.number, table.column("external")[owners])
            known = place != NO_ROW
            total[owners[known]] = self.by_id.ns[place[known]]
        here = self.by_launch.within(int(row[0]), int(row[-1]))
        place = places_of(row, here.number)
        known = place != NO_ROW
        op = view.ops_around(table, role, place[known], parent)
        some = op != NO_ROW
        launched: Array = total + _engine.sum_by(op[some], len(table), here.ns[known][some])
        return launched


def _gathered(reader: TraceReader, left_out: Array | None) -> _Work:
    """A pass over all events, and where work names its operators by id another one."""
    parts: list[tuple[Array, Array, Array]] = []
    count, correlated, operators = 0, True, False
    for table in reader.iterate(_WORK_COLUMNS, args=False):
        operators |= bool((table.column("kind") == Kind.CPU_OP).any())
        rows = np.flatnonzero(_roles(table, left_out) & COSTS)
        count += len(rows)
        if count > DEVICE_WORK_MAX:
            raise Exhausted(f"the trace has more than {DEVICE_WORK_MAX:,} kernels, copies and fills")
        external, link, correlation = (table.column(name)[rows] for name in ("external", "linked", "correlation"))
        correlated &= bool((external == correlation).all())
        parts.append((external, link, view.durations(table)[rows]))
    external, link, lasting = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    parts.clear()
    # Some releases wrote the correlation id in the place of the operator's.
    ids = np.zeros(0, dtype=np.int64) if correlated else _of_one(reader, np.unique(external[external > 0]), left_out)
    named = places_of(ids, external) != NO_ROW
    launched = ~named & (link >= 0)
    return _Work(_Sums.of(external[named], lasting[named]), _Sums.of(link[launched], lasting[launched]), operators)


def _roles(table: EventTable, left_out: Array | None) -> Array:
    role = roles_of(table)
    if left_out is not None:
        role[left_out[table.first_row : table.first_row + len(table)]] = 0
    return role


def _of_one(reader: TraceReader, ids: Array, left_out: Array | None) -> Array:
    """Ids among these, which ascend, that one operator has: an id of two says nothing."""
    if not len(ids):
        return ids
    owners = np.zeros(len(ids), dtype=np.int64)
    for table in reader.iterate((*view.COLUMNS, "external"), args=False):
        place = places_of(ids, table.column("external")[np.flatnonzero(_roles(table, left_out) & OWNER)])
        found, often = np.unique(place[place != NO_ROW], return_counts=True)
        owners[found] += often
    of_one: Array = ids[owners == 1]
    return of_one


def _complete(reader: TraceReader, left_out: Array | None) -> Iterator[EventTable]:
    """Calls on the host with all that overlap them on their thread, some at a time, in row order; with `row`."""
    held: list[EventTable] = []
    left = len(reader)
    for table in reader.iterate((*view.COLUMNS, "external"), args=False):
        left -= len(table)
        kept = np.flatnonzero((_roles(table, left_out) != 0) & rules.is_cpu(table.column("device_type")))
        some = table.take(kept)
        some.columns["row"] = kept + table.first_row
        held.append(some)
        if left and sum(map(len, held)) < _TOGETHER:
            continue
        batch = join(held, table.dictionaries)
        over = _over(batch) if left else np.ones(len(batch), dtype=bool)
        yield _of(batch, over)
        held = [_of(batch, ~over)]
        if len(held[0]) > QUERY_ROWS_MAX:
            raise Exhausted(f"more than {QUERY_ROWS_MAX:,} calls of a thread lie within one that lasts")


def _of(table: EventTable, chosen: Array) -> EventTable:
    found = table.take(np.flatnonzero(chosen))
    return EventTable(found.columns, table.dictionaries)


def _over(table: EventTable) -> Array:
    """Which rows nothing can overlap on their thread that starts no earlier than the last of this table."""
    start = table.columns["start"]
    over = np.zeros(len(table), dtype=bool)
    # Of equal starts the longer encloses the shorter: they must be seen together.
    early = np.flatnonzero(start < start[-1]) if len(start) else np.zeros(0, dtype=np.int64)
    if not len(early):
        return over
    thread = table.column("thread")[early]
    order = np.argsort(thread, kind="stable")
    early, thread, begun = early[order], thread[order], start[early[order]]
    nests = (having(roles_of(table), NESTS)[early] != 0) & (thread >= 0)
    end = np.where(nests, np.maximum(table.column("end")[early], begun), begun)
    first = np.concatenate([[True], thread[1:] != thread[:-1]])
    at = np.flatnonzero(first)
    until = reached(end, at)
    # A row begins anew where all before it on its thread are over, and none of them begins with it.
    apart_ = first.copy()
    apart_[1:] |= (begun[1:] >= until[:-1]) & (begun[1:] > begun[:-1])
    group = np.cumsum(apart_)
    last = np.append(at[1:], len(early)) - 1
    open_ = until[last] > start[-1]
    number = np.cumsum(first) - 1  # of the thread of each row
    over[early[~(open_[number] & (group == group[last][number]))]] = True
    return over
