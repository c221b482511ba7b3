"""Which forward op each backward op belongs to.

A backward op names its forward op by thread and sequence number. Kineto's JSON
numbers forward threads in its own way, so that the threads of the rows say
nothing: there the `fwdbwd` flows join the two, and by them we know which number
is which thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from profd import _engine
from profd.derive.ancestors import nearest
from profd.events import NO_END, NO_ROW, EventTable, Flows, Kind, Scope, Tracks
from profd.events.table import Array
from profd.tree.forward import engine_calls, engine_rows, plumbed

AUTOGRAD_COLUMNS: Final = ("name", "kind", "start", "end", "process", "thread", "sequence", "fwd_thread", "scope")
FLOW_CATEGORIES: Final = ("fwdbwd", "forward_backward")  # the second in 2021


@dataclass(frozen=True, slots=True)
class Links:
    """Per row of a table in start order."""

    sequence: Array  # int64, NO_END: none; evaluate_function rows have that of the function they call
    backward: Array  # bool: a backward op
    function: Array  # bool: a backward function, not the engine's row around it
    forward_row: Array  # int64: of a backward op its forward op, or NO_ROW
    context_row: Array  # int64: of a backward op the first row with its forward thread and number, or NO_ROW


def find_links(table: EventTable, flows: Flows | None = None, tracks: Tracks | None = None) -> Links:
    """Links of a whole trace (`first_row` 0).

    Of several forward ops with the number of a backward op the last one that
    starts before it, of equal starts the later row. A flow that ends at a row
    says more than numbers do.
    """
    engine = engine_rows(table)
    calls = engine_calls(table, engine)
    sequence, fwd_thread = plumbed(table, calls)
    backward = (fwd_thread != NO_END) & (fwd_thread != 0)
    paired, origin = _by_flow(table, flows)
    rows, forward = np.flatnonzero(backward), (sequence >= 0) & ~backward
    thread = _forward_threads(table, rows, fwd_thread[rows], forward, (paired, origin), tracks or Tracks())
    numbered = (sequence[rows] >= 0) & (thread != NO_ROW)
    last, first = _by_number(table, sequence, forward, rows[numbered], thread[numbered])
    last[paired] = origin
    function = backward & ~engine
    function[calls[1]] = True
    function |= table.column("scope") == Scope.BACKWARD_FUNCTION
    return Links(sequence, backward, function, last, first)


def _by_flow(table: EventTable, flows: Flows | None) -> tuple[Array, Array]:
    """(backward row, forward row) of the flows that join two rows; the first flow that ends at a row counts."""
    none = np.empty(0, dtype=np.int64)
    if flows is None or not len(flows.id):
        return none, none
    known = table.dictionaries.get("cat")
    wanted = [code for code, name in enumerate(known.values if known is not None else []) if name in FLOW_CATEGORIES]
    fits = np.flatnonzero(np.isin(flows.category, wanted) & (flows.row >= 0) & (flows.row < len(table)))
    row = flows.row[fits]
    key = (table.column("process")[row].astype(np.int64) << 32) | flows.id[fits]
    begins, ends = flows.phase[fits] == ord("s"), flows.phase[fits] == ord("f")
    ids, first = np.unique(key[begins], return_index=True)
    if not len(ids):
        return none, none
    place = np.minimum(np.searchsorted(ids, key[ends]), len(ids) - 1)
    met = ids[place] == key[ends]
    target, once = np.unique(row[ends][met], return_index=True)
    source = row[begins][first][place][met][once]
    # What ends where it begins, or before, was not forward.
    onward = source < target
    return target[onward], source[onward]


def _forward_threads(
    table: EventTable, rows: Array, numbers: Array, forward: Array, flows: tuple[Array, Array], tracks: Tracks
) -> Array:
    """For each of the backward ops `rows` the track of its forward thread (int32), else NO_ROW.

    A recorded number means, in this order: the thread that most flows say; the
    thread with this id; the only thread of the process that has forward ops.
    """
    process = np.ascontiguousarray(table.column("process")[rows], dtype=np.int64)
    group, first = _engine.group_rows([process, np.ascontiguousarray(numbers)])
    ids = {(track.get("process"), track.get("id")): number for number, track in enumerate(tracks.threads)}
    named = zip(process[first].tolist(), numbers[first].tolist(), strict=True)
    meant = np.array([ids.get(of_process, NO_ROW) for of_process in named], dtype=np.int32)
    unknown = np.flatnonzero(meant == NO_ROW)
    if len(unknown):
        only = _only_threads(table, forward)
        meant[unknown] = [only.get(number, NO_ROW) for number in process[first[unknown]].tolist()]
    _by_votes(table, rows, group, flows, meant)
    thread: Array = meant[group]
    return thread


def _only_threads(table: EventTable, forward: Array) -> dict[int, int]:
    """Process -> its thread with forward ops, where there is one only."""
    some = _some_row(table.column("thread")[forward], np.flatnonzero(forward))
    owners, first, count = np.unique(table.column("process")[some], return_index=True, return_counts=True)
    threads = table.column("thread")[some][first]
    return {int(owner): int(thread) for owner, thread, n in zip(owners, threads, count, strict=True) if n == 1}


def _some_row(thread: Array, rows: Array) -> Array:
    """One of the rows of each thread; a thread is of one process."""
    if not len(rows):
        return rows
    found = np.full(int(thread.max()) + 2, NO_ROW, dtype=np.int64)  # the last is for rows without one
    found[thread] = rows
    some: Array = found[found != NO_ROW]
    return some


def _by_votes(table: EventTable, rows: Array, group: Array, flows: tuple[Array, Array], meant: Array) -> None:
    target, source = flows
    if not len(target) or not len(rows):
        return
    place = np.minimum(np.searchsorted(rows, target), len(rows) - 1)
    votes = rows[place] == target
    number, thread = group[place[votes]], table.column("thread")[source[votes]]
    pair, first = _engine.group_rows([number, thread.astype(np.int64)])
    order = np.argsort(np.bincount(pair, minlength=len(first)), kind="stable")  # the most votes are written last
    meant[number[first[order]]] = thread[first[order]]


def _by_number(
    table: EventTable, sequence: Array, forward: Array, backward: Array, thread: Array
) -> tuple[Array, Array]:
    """(last forward op not after it, first row) with the number of each of the rows `backward`, on `thread`.

    NO_ROW in all other rows.
    """
    last, first = (np.full(len(table), NO_ROW, dtype=np.int64) for _ in range(2))
    ops = np.flatnonzero(forward & (table.column("kind") == Kind.CPU_OP))
    last[backward], first[backward] = _engine.match_forward(
        np.ascontiguousarray(table.columns["start"]),
        np.ascontiguousarray(sequence),
        ops,
        np.ascontiguousarray(table.column("thread")[ops]),
        backward,
        thread,
    )
    return last, first


def backward_times(links: Links, parent: Array, lasting: Array) -> Array:
    """For each row the time in ns of the backward ops linked to it, of nested ones the outermost only.

    `parent` are rows by nesting on threads; `lasting` durations in ns.
    """
    linked = links.forward_row != NO_ROW
    above = nearest(parent.copy(), linked)
    same = linked & (above != NO_ROW) & (links.forward_row[above] == links.forward_row)
    outermost = np.flatnonzero(linked & ~same)
    return _engine.sum_by(links.forward_row[outermost], len(parent), lasting[outermost])


def context_rows(tops: Array, links: Links, parent: Array) -> tuple[Array, Array]:
    """(rows that are or lie below one of `tops`, the row whose stack or module they take, or NO_ROW)."""
    above = nearest(parent.copy(), tops)
    of = np.where(tops, np.arange(len(parent)), above)
    rows = np.flatnonzero(of != NO_ROW)
    return rows, links.context_row[of[rows]]
