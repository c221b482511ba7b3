"""The kernels of the trace engine beside bare C++ passes over the same number of rows, and DuckDB."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from profd.workers.child import ALLOCATOR

from bench import data, floors
from bench.measure import SCRATCH, Row, child

THREADS = 4
SIZES = (100_000, 1_000_000, 10_000_000)
COPIED = 1_000_000  # larger traces are copies of one of this size
STACKS = 2000


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
    yield _mixed(events)
    yield from _averages(events)
    yield from _growth()


def _mixed(events: int) -> Row:
    correlate = floors.run("tree", str(events), str(THREADS))[2]
    taken = child("bench.ours.kernels:mixed", {"count": events}, environment=ALLOCATOR)["result"]
    row = _row(
        f"linking, tensor ids and forward-backward of {events / 1e6:g}M rows",
        sum(taken.values()),
        correlate,
        events,
        25,
    )
    row.note = ", ".join(f"{what} {seconds / events * 1e9:.1f} ns" for what, seconds in taken.items())
    return row


def _row(what: str, ours: float, floor: float, count: int, bar: float) -> Row:
    shown, least = f"{ours / count * 1e9:.1f} ns a row", f"{floor / count * 1e9:.1f} ns"
    ratio = ours / floor
    return Row("engine", what, shown, floor=least, ratio=ratio, bar=f"<= {bar:g}x", met=ratio <= bar)


def _averages(events: int) -> Iterator[Row]:
    plain, with_stacks = _stored(data.trace(events)), _stored(data.trace(events, stacks=STACKS))
    found = child("bench.ours.averages:columns", {"trace_dir": plain}, environment=ALLOCATOR)["result"]
    size = f"{events / 1e6:g}M"
    yield _against_duckdb(f"key averages of {size} calls from columns", found["groups"], 1)
    yield _against_duckdb(
        f"key averages of {size} events from columns, torch's view rules among it", found["rules"], None
    )
    for what, trace_dir, context in (
        ("", plain, ""),
        (" by input shapes", plain, "inputs"),
        (f" by stacks ({STACKS} of them)", with_stacks, "stack"),
    ):
        arguments = {"trace_dir": trace_dir, "context": context}
        pairs = child("bench.ours.averages:stored", arguments, environment=ALLOCATOR)["result"]
        yield _against_duckdb(f"key averages of {size} stored events{what}", pairs, 4)
    yield from _of_ranks()


RANKS, RANK_EVENTS = 64, 200_000


def _of_ranks() -> Iterator[Row]:
    """A capture of very many ranks, its events and not rollups, to DuckDB over the same files."""
    stored = _stored(data.trace(RANK_EVENTS))
    for how, raw in (("as recorded", True), ("by torch's view rules", False)):
        arguments = {"trace_dir": stored, "ranks": RANKS, "raw": raw}
        found = child("bench.ours.averages:of_ranks", arguments, environment=ALLOCATOR)["result"]
        what = f"averages of each of {RANKS} ranks of {RANK_EVENTS:,} events, {how}"
        yield _against_duckdb(what, found["cpu"], 1.3)
        yield _against_duckdb(f"{what}, a thread for each core on both sides", found["clock"], 1.3, "by the clock")


def _stored(trace: Path) -> str:
    out = SCRATCH / f"stored-{trace.stem}"
    child("bench.ours.engine:store", {"path": str(trace), "out": str(out)}, environment=ALLOCATOR)
    return str(out)


def _against_duckdb(what: str, pairs: list[list[float]], bar: float | None, unit: str = "of CPU") -> Row:
    ours, peer = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
    ratio = statistics.median(own / other for own, other in pairs)
    return Row(
        "engine",
        what,
        f"{ours * 1e3:.0f} ms {unit}",
        f"DuckDB {peer * 1e3:.0f} ms",
        ratio=ratio,
        bar=f"<= {bar:g}x" if bar else "",
        met=ratio <= bar if bar else None,
    )


def _growth() -> Iterator[Row]:
    """What an event costs in small and in large traces."""
    stored, asked = [], []
    for size in SIZES:
        trace = data.trace(size) if size <= COPIED else data.trace(COPIED, copies=size // COPIED)
        arguments = {"path": str(trace), "out": str(SCRATCH / "stored-growth"), "repeat": 3 if size <= COPIED else 1}
        found = child("bench.ours.engine:costs", arguments, environment=ALLOCATOR)["result"]
        stored.append(found["store"] / size)
        asked.append(found["top"] / size)
    for what, per_event in (("import", stored), ("key averages", asked)):
        growth = max(per_event) / min(per_event)
        shown = " / ".join(f"{seconds * 1e9:.0f}" for seconds in per_event)
        what = f"{what}, ns of CPU an event at 1e5 / 1e6 / 1e7"
        yield Row("engine", what, shown, ratio=growth, bar="within 2x", met=growth <= 2)
