"""XSpace in: parsed and stored beside protobuf's own parse of the same bytes, and the derived lines."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from profd.workers.child import ALLOCATOR

from bench import data
from bench.measure import SCRATCH, Row, child, median

EVENTS = 360_000
PARSE_BAR, MEMORY_BAR = 3.0, 3.0


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    path = data.xspace(EVENTS)
    size = path.stat().st_size
    parse = median("bench.peers.protobuf_parse:parse", {"path": str(path)}, 3)["seconds"]
    stored = SCRATCH / "stored-xspace"
    arguments = {"path": str(path), "out": str(stored), "kind": "xspace"}
    ours = median("bench.ours.engine:store", arguments, 3, environment=ALLOCATOR)
    ratio = ours["seconds"] / parse
    yield Row(
        "xspace",
        f"XSpace of {EVENTS / 1e3:g}k events, {size / 1e6:.0f} MB, to a stored trace, to protobuf's parse",
        f"{ours['seconds']:.2f} s",
        f"{parse:.2f} s",
        ratio=ratio,
        bar=f"<= {PARSE_BAR:g}x",
        met=ratio <= PARSE_BAR,
        note=f"phases {ours['result'].get('timings_ns')}",
    )
    idle = child("bench.ours.engine:nothing", {}, environment=ALLOCATOR)["peak_bytes"]
    grown = (ours["peak_bytes"] - idle) / size
    shown = f"{ours['peak_bytes'] / 1e6:.0f} MB, of them {idle / 1e6:.0f} for the worker itself"
    yield Row(
        "xspace", "peak memory, to the file", shown, ratio=grown, bar=f"<= {MEMORY_BAR:g}x", met=grown <= MEMORY_BAR
    )
    query = {"job": "timeline", "trace_dir": str(stored), "repeat": 3}
    taken = statistics.median(child("bench.ours.engine:query", query, environment=ALLOCATOR)["result"])
    yield Row(
        "xspace",
        "its groups and derived lines, as JSON",
        f"{taken:.2f} s",
        bar="(xprof's trace viewer: 3 to 9 s)",
        note="xprof runs in an environment of its own and is not started here",
    )
