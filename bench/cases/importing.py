"""Kineto JSON to a stored, tree-built trace; then questions about it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

from profd.workers.child import ALLOCATOR

from bench import data, floors
from bench.measure import SCRATCH, ChildFailed, Row, child, median

HTA = SCRATCH / "hta" / "bin" / "python"
MEMORY_BAR = 600e6


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    trace = data.trace(events)
    ours = median(
        "bench.ours.engine:store", {"path": str(trace), "out": str(SCRATCH / "stored")}, 3, environment=ALLOCATOR
    )
    floor = min(floors.run("scan", str(trace))[0] for _ in range(3))
    decode = median("bench.peers.msgspec_decode:decode", {"path": str(trace)}, 3)
    seconds = ours["seconds"]
    per_event = seconds / events * 1e9
    yield Row(
        "importing",
        f"JSON to stored trace, {events / 1e6:g}M events, to msgspec's typed decode",
        f"{seconds:.2f} s, {per_event:.0f} ns/event",
        f"{decode['seconds']:.2f} s",
        f"{floor:.2f} s",
        seconds / decode["seconds"],
        "<= 1.5x",
        seconds / decode["seconds"] <= 1.5,
        note=f"phases {ours['result'].get('timings_ns')}",
    )
    yield from _against_torch(trace, events, seconds)
    yield from _against_hta(trace, seconds)
    yield from _larger(events, ours["peak_bytes"])
    yield from _queries()


def _against_torch(trace: Path, events: int, seconds: float) -> Iterator[Row]:
    peer = child("bench.peers.torch_events:averages", {"truth": str(trace.with_suffix(".npz"))})
    ratio = peer["seconds"] / seconds
    what = f"the same, to torch's EventList + tree + key_averages of {events / 1e6:g}M"
    yield Row("importing", what, f"{seconds:.2f} s", f"{peer['seconds']:.1f} s", "", ratio, ">= 10x", ratio >= 10)


def _against_hta(trace: Path, seconds: float) -> Iterator[Row]:
    what = "the same, to HolisticTraceAnalysis' load"
    if not HTA.exists():
        note = f"python -m venv {HTA.parent.parent} && … pip install HolisticTraceAnalysis 'pandas<3'"
        yield Row("importing", what, f"{seconds:.2f} s", "not installed", note=note)
        return
    try:
        peer = child("bench.peers.hta_load:load", {"path": str(trace)}, str(HTA))
    except ChildFailed as error:
        yield Row("importing", what, f"{seconds:.2f} s", "failed", note=str(error)[-300:])
        return
    ratio = peer["seconds"] / seconds
    yield Row("importing", what, f"{seconds:.2f} s", f"{peer['seconds']:.1f} s", "", ratio, ">= 10x", ratio >= 10)


def _larger(events: int, peak: float) -> Iterator[Row]:
    arguments = {"path": str(data.trace(5 * events)), "out": str(SCRATCH / "stored5")}
    larger = child("bench.ours.engine:store", arguments, environment=ALLOCATOR)
    decode = child("bench.peers.msgspec_decode:decode", {"path": arguments["path"]})
    ratio = larger["seconds"] / decode["seconds"]
    yield Row(
        "importing",
        f"JSON to stored trace, {5 * events / 1e6:g}M events, to msgspec's typed decode",
        f"{larger['seconds']:.2f} s",
        f"{decode['seconds']:.2f} s",
        "",
        ratio,
        "<= 1.5x",
        ratio <= 1.5,
    )
    worst = max(peak, larger["peak_bytes"])
    shown = f"{peak / 1e6:.0f} MB and {larger['peak_bytes'] / 1e6:.0f} MB, {larger['seconds']:.1f} s"
    what = f"peak memory, {events / 1e6:g}M and {5 * events / 1e6:g}M events"
    yield Row("importing", what, shown, bar="<= 600 MB", met=worst <= MEMORY_BAR)


def _queries() -> Iterator[Row]:
    stored = str(SCRATCH / "stored")
    for what, job, arguments, bar in (
        ("top", "top", {}, 0.150),
        ("top --raw", "top", {"raw": True}, 0.150),
        ("export of a 10 ms window", "export", {"format": "chrome", "from_ns": 10**8, "to_ns": 11 * 10**7}, 0.300),
    ):
        query = {"job": job, "trace_dir": stored, "repeat": 5, **arguments}
        answer = child("bench.ours.engine:query", query, environment=ALLOCATOR)
        taken = statistics.median(answer["result"])
        yield Row("importing", what, f"{taken * 1e3:.0f} ms", bar=f"<= {bar * 1e3:.0f} ms", met=taken <= bar)
