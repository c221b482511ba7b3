"""The rows that a table of `profctl sql` counts, of a trace of any size, a segment at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import numpy as np

from profd.derive.autograd import AUTOGRAD_COLUMNS, FLOW_CATEGORIES, Links, find_links
from profd.derive.memory import MEMORY_NAME
from profd.derive.tensors import TENSOR_ARGS, TENSOR_COLUMNS, Tensors, find_tensors
from profd.events import NO_END, EventTable, Flows, Kind
from profd.events.table import Array
from profd.query import rules
from profd.query.part import flows_within
from profd.query.whole import check_size
from profd.segments.join import join
from profd.segments.reader import TraceReader
from profd.tree.forward import engine_rows

_INSTEAD: Final = "export a --window of the trace, import that, and ask it"


def backward_links(reader: TraceReader) -> tuple[Array, Links]:
    """(rows of the trace, links between them as `find_links` has those of the whole). Exhausted for too many."""
    flows = reader.flows(FLOW_CATEGORIES)
    table = _kept(reader, [*AUTOGRAD_COLUMNS, "cat"], (), _OfAutograd(reader, flows).rows)
    return table.columns["row"], find_links(table, flows_within(flows, table), reader.tracks)


def tensors_of(reader: TraceReader) -> tuple[Array, Tensors]:
    """(rows of the trace, tensors whose rows count in these). Exhausted for too many."""
    named = rules.Named(MEMORY_NAME.__eq__)

    def rows(table: EventTable) -> Array:
        inputs = [arg.rows for (key, _), arg in table.args.items() if key in TENSOR_ARGS]
        told = (table.column("ptr") != NO_END) & (table.column("bytes") != NO_END)
        return np.unique(np.concatenate([*inputs, np.flatnonzero(named.of(table) & told)]))

    table = _kept(reader, TENSOR_COLUMNS, TENSOR_ARGS, rows)
    return table.columns["row"], find_tensors(table)


def _kept(
    reader: TraceReader, columns: Collection[str], args: Collection[str], rows: Callable[[EventTable], Array]
) -> EventTable:
    """The rows that a function chooses of each table, ascending, with `row`."""
    found: list[EventTable] = []
    count = 0
    for table in reader.iterate(columns, args=args or False):
        chosen = rows(table).astype(np.int64)
        some = table.take(chosen)
        some.columns["row"] = chosen + table.first_row
        found.append(EventTable(some.columns, some.dictionaries, some.args))
        count += len(chosen)
        check_size(count, _INSTEAD)
    together = join(found, reader.dictionaries)
    together.columns.setdefault("row", np.zeros(0, dtype=np.int64))
    return together


class _OfAutograd:
    """Chooses what forward ops are told by, of tables in row order: sequence numbers, engine's rows, flows."""

    def __init__(self, reader: TraceReader, flows: Flows) -> None:
        self._joined = np.unique(flows.row)  # rows that flows bind to
        self._after_engine = np.zeros(len(reader.tracks.threads) + 1, dtype=bool)  # the last answers for no thread

    def rows(self, table: EventTable) -> Array:
        """Of the next table."""
        fwd_thread = table.column("fwd_thread")
        kept = (table.column("sequence") >= 0) | ((fwd_thread != NO_END) & (fwd_thread != 0))
        engine, ops = engine_rows(table), table.column("kind") == Kind.CPU_OP
        kept |= engine & ops
        kept[self._called(table.column("thread"), engine, np.flatnonzero(ops))] = True
        low, high = np.searchsorted(self._joined, (table.first_row, table.first_row + len(table)))
        kept[self._joined[low:high] - table.first_row] = True
        return np.flatnonzero(kept)

    def _called(self, thread: Array, engine: Array, ops: Array) -> Array:
        """The operators that come next on their thread after a row of the engine."""
        if not len(ops):
            return ops
        order = ops[np.argsort(thread[ops], kind="stable")]
        of, is_engine = thread[order], engine[order]
        first = np.concatenate([[True], of[1:] != of[:-1]])
        after = np.concatenate([[False], is_engine[:-1]])
        after[first] = self._after_engine[of[first]]
        last = np.append(first[1:], True)
        self._after_engine[of[last]] = is_engine[last]
        called: Array = order[after]
        return called
