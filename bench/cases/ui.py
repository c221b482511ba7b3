"""Tiles of the timeline of `profctl ui`; `python -m bench.ui` measures the page in a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from profd.workers.child import ALLOCATOR

from bench import data
from bench.measure import SCRATCH, Row, child

WINDOWS = 200
RATE_BAR, SHARE_BAR, ANSWER_BAR = 15e6, 0.10, 0.050


def rows(events: int) -> Iterator[Row]:
    """The rows of this case: building, size, answers."""
    place = SCRATCH / "tiles"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    stored = str(place / "trace")
    (place / "trace").mkdir()
    child("bench.ours.engine:store", {"path": str(data.trace(events, steps=100)), "out": stored})
    given = {"directory": stored, "scratch": str(place), "windows": WINDOWS}
    try:
        found = child("bench.ours.tiling:measure", given, environment=ALLOCATOR)["result"]  # as a worker runs
        compared = {"directory": stored, "kept": str(place / "kept"), "windows": WINDOWS}
        drawn = child("bench.ours.drawing:compare", compared)["result"]
    finally:
        shutil.rmtree(place, ignore_errors=True)
    count = found["events"]
    rate, cpu = count / found["build_wall"], count / found["build_cpu"]
    ours = f"{rate / 1e6:.1f}M events/s ({cpu / 1e6:.1f}M by CPU)"
    yield Row("ui", f"index of a timeline of {count} events", ours, bar=">= 15M events/s", met=rate >= RATE_BAR)
    share = found["bytes"] / found["trace_bytes"]
    ours = f"{found['bytes'] / 1e6:.1f} MB, {100 * share:.1f} % of the trace"
    yield Row("ui", f"its size, {count} events", ours, bar="<= 10 %", met=share <= SHARE_BAR)
    names = ("wall_p50", "wall_p95", "cpu_p50", "cpu_p95")
    middle, wall, half, most = (1000 * found[name] for name in names)
    ours = f"p50 {middle:.0f}, p95 {wall:.0f} ms; CPU p50 {half:.0f}, p95 {most:.0f} ms"
    met = found["wall_p95"] <= ANSWER_BAR
    yield Row("ui", f"a tile of {count} events, all tracks, {WINDOWS} windows", ours, bar="p95 <= 50 ms", met=met)
    equal = drawn["windows"] - drawn["differ"]
    ours = f"{equal} of {drawn['windows']} windows equal, {drawn['shapes']} boxes and cells"
    met = drawn["differ"] == 0
    yield Row("ui", f"tiles of {count} events to a drawing of each event", ours, bar="all equal", met=met)
