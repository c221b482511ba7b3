"""From a recording to key averages: torch's profiler, HolisticTraceAnalysis and Perfetto's engine on the same events.

Of CPU time, which a busy machine moves least; each in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from profd.workers.child import ALLOCATOR

from bench import data
from bench.measure import SCRATCH, ChildFailed, Row, child
from bench.ours.one_capture import as_text
from bench.peers import perfetto_engine

HTA = SCRATCH / "hta" / "bin" / "python"
HTA_INSTALL = (
    f"python -m venv {HTA.parent.parent}; {HTA.parent / 'pip'} install HolisticTraceAnalysis==0.5.0 'pandas<3'"
)
REPEAT = 5
CAPTURE_STEPS = 1500  # of a tiny MLP: 240,000 events
TORCH = ("stop", "events", "key averages")
EVENTS_A_STEP = 10_000  # as in the traces of real training: 7,400 to 12,500


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    yield from _live_capture()
    yield _against_hta(events)
    yield _against_perfetto(events)


def _live_capture() -> Iterator[Row]:
    chunks, trace = SCRATCH / "one-capture.pfc", SCRATCH / "one-capture.json"
    files = {"chunks": str(chunks), "trace": str(trace)}
    try:
        found = child("bench.ours.one_capture:record", {"steps": CAPTURE_STEPS, **files})["result"]
    except ChildFailed as error:  # there may be no build of the observer
        yield Row("peers", "a capture, stop to key averages", "", "not measured", note=str(error)[-300:])
        return
    torch = sum(found[what] for what in TORCH)
    peer = f"torch {torch:.1f} s: {as_text({what: found[what] for what in TORCH})}"
    before = {"stop": found["our stop"], "encode": found["encode"]}
    for what, path, kind, handed, bar in (
        ("our stream", chunks, "chunks", before, 150),
        ("our import of its JSON", trace, "chrome", {}, 30),
    ):
        answer = _costs(path, kind)
        spent = {**handed, "store": answer["store"], "top": answer["top"]}
        ours = sum(spent.values())
        yield Row(
            "peers",
            f"a capture of {found['torch events']:,.0f} events, stop to key averages: {what}",
            f"{ours * 1e3:.0f} ms: {as_text(spent)}; {answer['events']:,.0f} events",
            peer,
            ratio=torch / ours,
            bar=f">= {bar}x",
            met=torch / ours >= bar,
        )


def _costs(trace: Path, kind: str = "chrome") -> dict[str, Any]:
    """CPU seconds of storing a file, and of `top` on it."""
    arguments = {"path": str(trace), "kind": kind, "out": str(SCRATCH / "stored-peers"), "repeat": REPEAT}
    found: dict[str, Any] = child("bench.ours.engine:costs", arguments, environment=ALLOCATOR)["result"]
    return found


def _against_hta(events: int) -> Row:
    steps = max(events // EVENTS_A_STEP, 1)
    what = f"HolisticTraceAnalysis' load and call graph, {events / 1e6:g}M events and {steps} ProfilerStep rows"
    if not HTA.exists():
        return Row("peers", what, "", "not installed", note=HTA_INSTALL)
    trace = data.trace(events, steps=steps)
    ours = _costs(trace)["store"]
    try:
        peer = child("bench.peers.hta_load:load_and_graph", {"path": str(trace)}, str(HTA))["cpu_seconds"]
    except ChildFailed as error:
        return Row("peers", what, f"{ours:.2f} s", "failed", note=str(error)[-300:])
    ratio = peer / ours
    return Row("peers", what, f"{ours:.2f} s", f"{peer:.1f} s", ratio=ratio, bar=">= 30x", met=ratio >= 30)


def _against_perfetto(events: int) -> Row:
    what = f"Perfetto's engine, load and averages by name, {events / 1e6:g}M events"
    if missing := perfetto_engine.missing():
        return Row("peers", what, "", "not installed", note=missing)
    trace = data.trace(events)
    found = _costs(trace)
    stored, top = found["store"], found["top"]
    peer = perfetto_engine.measure(trace)
    load, query = peer["load"]["cpu_seconds"], peer["query"]["cpu_seconds"]
    ratio = (load + query) / (stored + top)
    return Row(
        "peers",
        what,
        f"{stored:.2f} s and {top * 1e3:.0f} ms",
        f"{load:.2f} s and {query * 1e3:.0f} ms, in WebAssembly",
        ratio=ratio,
        bar=">= 6x",
        met=ratio >= 6,
    )
