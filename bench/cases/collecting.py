"""What the CUPTI collector costs a record, beside the least walk over the same buffers. CUPTI is a stand-in."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

from bench.measure import ROOT, SCRATCH, Row, child
from bench.ours.collecting import LAUNCHES

BAR = 2.0
ROUNDS = 30


def rows(events: int) -> Iterator[Row]:
    """The row of this case."""
    del events
    SCRATCH.mkdir(exist_ok=True)
    library, source = SCRATCH / "fake_cupti.so", ROOT / "tests" / "support" / "fake_cupti.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-pthread", "-o", library, source], check=True)
    environment = {"PROFD_CUPTI_LIBRARY": str(library)}
    took: dict[str, float] = child("bench.ours.collecting:per_record", {"rounds": ROUNDS}, environment=environment)[
        "result"
    ]
    yield Row(
        "collecting",
        "a CUPTI record into the arena (half calls, half kernels)",
        f"{took['ours']:.0f} ns",
        floor=f"{took['bare']:.0f} ns, a bare C walk that keeps 32 bytes",
        ratio=took["ours"] / took["bare"],
        bar=f"<= {BAR:g}x",
        met=took["ours"] <= BAR * took["bare"],
        note=f"medians of {ROUNDS} buffers of {2 * LAUNCHES} records, zeroed again included; no GPU was involved",
    )
