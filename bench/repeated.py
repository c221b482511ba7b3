"""A stored trace again and again, one after the other, as one trace of any size: nothing is decoded for it."""

from __future__ import annotations

import os
import time
from copy import copy
from pathlib import Path

import numpy as np
from profd.events import NO_END, NO_ROW, Dictionary, EventTable, Flows
from profd.segments.meta import TraceMeta
from profd.segments.reader import TraceReader
from profd.segments.writer import TraceWriter
from profd.store.store import Store

from bench.gen_trace import STEP_NAME

BETWEEN_NS = 1_000_000


def repeat(trace: Path, root: Path, copies: int) -> str:
    """Put so many copies of a trace directory into the store in `root`, which nobody else has open; the id.

    Times, rows, correlation ids, flow ids and numbers of steps go on from copy to copy.
    """
    store = Store(root)
    try:
        staging = store.staging()
        meta = _written(TraceReader(trace), staging, copies)
        meta.trace, meta.owner_uid, meta.created_ns = store.new_id(), os.geteuid(), time.time_ns()
        return store.adopt(staging, meta).id
    finally:
        store.close()


def _written(reader: TraceReader, staging: Path, copies: int) -> TraceMeta:
    tables, flows = list(reader.iterate()), reader.flows()
    ids = list(reader.dictionaries["flow_id"].values) if "flow_id" in reader.dictionaries else []
    lasting = (reader.meta.end_ns or 0) - (reader.meta.start_ns or 0) + BETWEEN_NS
    launches = max(int(table.column("correlation").max()) for table in tables)
    steps = _Steps(reader.dictionaries["name"])
    with TraceWriter(staging) as writer:
        for number in range(copies):
            for table in tables:
                writer.write_segment(
                    _moved(table, number * lasting, number * len(reader), number * launches, steps, number)
                )
            if ids:
                words = Dictionary([f"{int(word) + number * launches}" for word in ids])
                writer.write_flows(
                    _flows(flows, number * lasting, number * len(reader)), {**reader.dictionaries, "flow_id": words}
                )
        meta = copy(reader.meta)
        meta.gpu_events = None
        return writer.finish(meta)


class _Steps:
    """Names of steps: those of a copy go on where those of the one before ended."""

    def __init__(self, names: Dictionary) -> None:
        self._names = names
        self._first = [
            (code, int(name.removeprefix(STEP_NAME)))
            for code, name in enumerate(names.values)
            if name.startswith(STEP_NAME)
        ]

    def renamed(self, codes: np.ndarray, copy: int) -> np.ndarray:
        if not copy or not self._first:
            return codes
        to = np.arange(len(self._names.values), dtype=codes.dtype)
        for code, step in self._first:
            to[code] = self._names.code(f"{STEP_NAME}{step + copy * len(self._first)}")
        return np.where(codes >= 0, to[codes], codes)


def _moved(table: EventTable, ns: int, rows: int, launches: int, steps: _Steps, copy: int) -> EventTable:
    columns = dict(table.columns)
    columns["name"] = steps.renamed(columns["name"], copy)
    for name, by, absent in (
        ("start", ns, None),
        ("end", ns, NO_END),
        ("parent", rows, NO_ROW),
        ("linked", rows, NO_ROW),
    ):
        columns[name] = _shifted(table.column(name), by, absent)
    values = table.column("correlation")
    columns["correlation"] = np.where(values > 0, values + launches, values)
    return EventTable(columns, table.dictionaries, table.args, table.first_row + rows)


def _shifted(values: np.ndarray, by: int, absent: int | None) -> np.ndarray:
    return values + by if absent is None else np.where(values == absent, values, values + by)


def _flows(flows: Flows, ns: int, rows: int) -> Flows:
    moved = {"time": _shifted(flows.time, ns, None), "row": _shifted(flows.row, rows, NO_ROW)}
    return Flows(**{name: moved.get(name, getattr(flows, name)) for name in Flows.__dataclass_fields__})
