"""Questions to a capture of a thousand traces, by what was kept of each when they were first asked."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from bench import data
from bench.measure import SCRATCH, Row, child

TRACES, EVENTS = 1000, 5000
TIMES = 5
SECONDS_BAR, MEMORY_BAR = 1.0, 300e6
BARRED = ("top", "diff")


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    del events
    root = SCRATCH / "many-traces"
    path = data.trace(EVENTS, steps=4)
    stored = child("bench.ours.many_traces:fill", {"path": str(path), "traces": TRACES, "root": str(root)})["result"]
    try:
        found = child("bench.ours.many_traces:ask", {"root": str(root), "times": TIMES})["result"]
    finally:
        shutil.rmtree(root, ignore_errors=True)
    for what, took in found["questions"].items():
        count = f"{'2 times ' if what == 'diff' else ''}{TRACES} traces of {stored['events']} events"
        barred = what in BARRED
        yield Row(
            "rollups",
            f"{what} of {count}, by rollups; to the first time",
            f"{took['rollups']:.2f} s ({took['cpu']:.2f} s of CPU), {took['peak_bytes'] / 1e6:.0f} MB at most so far",
            f"{took['events']:.1f} s",
            ratio=took["events"] / took["rollups"],
            bar=f"<= {SECONDS_BAR:g} s, <= {MEMORY_BAR / 1e6:.0f} MB" if barred else "",
            met=took["rollups"] <= SECONDS_BAR and took["peak_bytes"] <= MEMORY_BAR if barred else None,
            note=f"store {stored['bytes'] / 1e6:.0f} MB, with rollups {found['bytes'] / 1e6:.0f} MB",
        )
