"""Flow records of an export: the recorded ones, and links of backward ops that were worked out where none was."""

from __future__ import annotations

from typing import Final

import numpy as np

from profd.derive.autograd import AUTOGRAD_COLUMNS, FLOW_CATEGORIES, find_links
from profd.events import NO_ROW, Dictionary, EventTable, Flows
from profd.events.table import Array
from profd.limits import QUERY_ROWS_MAX
from profd.segments.reader import TraceReader

_CATEGORY: Final = FLOW_CATEGORIES[0]


def with_derived(reader: TraceReader) -> Flows:
    """The recorded flows and derived ones in an order of no meaning; codes are those of `reader.dictionaries`.

    Links are worked out in traces that fit into a worker; of larger ones the recorded flows alone are given.
    """
    recorded = reader.flows()
    if _has_links(reader, recorded) or len(reader) > QUERY_ROWS_MAX or not reader.has("fwd_thread"):
        return recorded
    table = reader.read([*AUTOGRAD_COLUMNS, "cat"], args=False)
    return _joined(recorded, _computed(table, find_links(table, recorded, reader.tracks).forward_row, reader))


def _has_links(reader: TraceReader, flows: Flows) -> bool:
    known = reader.dictionaries.get("cat", Dictionary()).values
    return bool(np.isin(flows.category, [known.index(name) for name in FLOW_CATEGORIES if name in known]).any())


def _computed(table: EventTable, forward_row: Array, reader: TraceReader) -> Flows:
    """A start at each forward op and a finish at each backward op, in pairs with an id of their own."""
    backward = np.flatnonzero(forward_row != NO_ROW)
    row = np.stack([forward_row[backward], backward], axis=1).reshape(-1)
    words = {name: reader.dictionaries.setdefault(name, Dictionary()) for name in ("flow_id", "cat", "name")}
    taken = {text.strip('"') for text in words["flow_id"].values}  # to viewers 7 and "7" are one
    free = (text for number in range(1, len(taken) + len(backward) + 1) if (text := str(number)) not in taken)
    ids = words["flow_id"].codes([text for text, _ in zip(free, backward, strict=False)])
    count = len(row)
    return Flows(
        id=np.repeat(np.array(ids, dtype=np.int32), 2),
        category=np.full(count, words["cat"].code(_CATEGORY), dtype=np.int32),
        name=np.full(count, words["name"].code(_CATEGORY), dtype=np.int32),
        phase=np.tile(np.array([ord("s"), ord("f")], dtype=np.uint8), count // 2),
        enclosing=np.tile(np.array([False, True]), count // 2),
        thread=table.column("thread")[row],
        time=table.columns["start"][row],
        row=row,
    )


def _joined(first: Flows, second: Flows) -> Flows:
    return Flows(
        **{name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in Flows.__dataclass_fields__}
    )
