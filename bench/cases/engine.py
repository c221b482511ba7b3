"""The kernels of the trace engine beside bare C++ passes over the same number of rows, and DuckDB."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from profd.workers.child import ALLOCATOR

from bench import data, floors
from bench.measure import SCRATCH, Row, child

THREADS = 4
SIZES = (100_000, 1_000_000, 10_000_000)


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    per_event = []
    for size in SIZES:
        ours = child("bench.ours.kernels:tree", {"count": size, "threads": THREADS})["result"]
        ordered, unsorted, *_ = floors.run("tree", str(size), str(THREADS))
        per_event.append(ours[0] / size)
        if size == SIZES[-1]:
            yield _row(f"tree of {size / 1e6:g}M rows in begin order", ours[0], ordered, size, 3)
            yield _row(f"sort and tree of {size / 1e6:g}M rows unsorted", ours[1], unsorted, size, 2)
    growth = max(per_event) / min(per_event)
    shown = " / ".join(f"{seconds * 1e9:.1f}" for seconds in per_event)
    yield Row("engine", "tree, ns a row at 1e5 / 1e6 / 1e7", shown, ratio=growth, bar="within 2x", met=growth <= 2)
    correlate = floors.run("tree", str(events), str(THREADS))[2]
    for what, kernel in (("links", "links"), ("tensor ids", "tensors")):
        taken = child(f"bench.ours.kernels:{kernel}", {"count": events})["result"]
        yield _row(f"{what} of {events / 1e6:g}M rows", taken, correlate, events, 25)
    yield from _averages(events)


def _row(what: str, ours: float, floor: float, count: int, bar: float) -> Row:
    shown, least = f"{ours / count * 1e9:.1f} ns a row", f"{floor / count * 1e9:.1f} ns"
    ratio = ours / floor
    return Row("engine", what, shown, floor=least, ratio=ratio, bar=f"<= {bar:g}x", met=ratio <= bar)


def _averages(events: int) -> Iterator[Row]:
    stored = SCRATCH / "stored-engine"
    child("bench.ours.engine:store", {"path": str(data.trace(events)), "out": str(stored)})
    duckdb = statistics.median(
        child("bench.peers.duckdb_averages:seconds", {"trace_dir": str(stored), "repeat": 5})["result"]
    )
    for what, arguments in (("key averages", {}), ("key averages, raw", {"raw": True})):
        query = {"job": "top", "trace_dir": str(stored), "repeat": 5, **arguments}
        taken = child("bench.ours.engine:query", query, environment=ALLOCATOR)["result"]
        ours = statistics.median(taken)
        yield Row(
            "engine",
            f"{what} of {events / 1e6:g}M stored events",
            f"{ours * 1e3:.0f} ms",
            f"DuckDB {duckdb * 1e3:.0f} ms",
            ratio=ours / duckdb,
            note="DuckDB sums stored self times; torch's view rules and device attribution come on top in ours",
        )
