"""Traces in a store, without a decoder: what a worker would have written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from profd.segments.meta import TraceMeta
from profd.segments.writer import TraceWriter
from profd.store.catalog import TraceRecord
from profd.store.store import Store
from profd.trust.caller import Caller

from tests.unit.profd.store.tables import random_table

ANN = Caller(uid=1001, gid=1001, user="ann", admin=False, pid=1)
BOB = Caller(uid=1002, gid=1002, user="bob", admin=False, pid=1)
ROOT = Caller(uid=0, gid=0, user="root", admin=True, pid=1)


def write_trace(directory: Path, rows: int = 50, meta: TraceMeta | None = None) -> TraceMeta:
    """A finished trace in an existing directory."""
    writer = TraceWriter(directory)
    writer.write_segment(random_table(rows, rows))
    return writer.finish(meta or TraceMeta())


def add(store: Store, owner: Caller = ANN, rows: int = 50, **fields: Any) -> TraceRecord:
    """Store a trace of somebody."""
    staging = store.staging()
    write_trace(staging, rows)
    meta = TraceMeta(trace=store.new_id(), owner_uid=owner.uid, owner=owner.user, **fields)
    return store.adopt(staging, meta)


async def run_job(job: str, args: dict[str, Any], fds: Sequence[int] = (), on_progress: Any = None) -> dict[str, Any]:
    """A worker that finds fifty events in every file."""
    assert job == "store_trace"
    meta = write_trace(Path(args["staging"]), meta=msgspec.convert(args["meta"], TraceMeta))
    return {"events": meta.events, "warnings": [*meta.warnings, "odd"], "launches": 3, "timings_ns": {"store": 5}}


def whole_traces(store: Store) -> Iterator[str]:
    """The ids in the catalog; fails unless each can be read to its last row."""
    from profd.segments.reader import TraceReader

    for record in store.newest_first():
        reader = TraceReader(store.directory(record.id))
        assert len(reader.read()) == record.events == reader.meta.events
        assert reader.meta.trace == record.id
        yield record.id
