"""A 500 ms capture through kineto: where its time goes, and what of it is ours."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterator

from bench.live import profd, wait_until
from bench.measure import ROOT, Row

CAPTURES = 5
OURS = ("pick-up", "decode", "store")
BAR_SECONDS_PER_50K = 0.300


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    phases: dict[str, list[float]] = defaultdict(list)
    totals, own, counts = [], [], []
    with profd() as live:
        job = live.job((ROOT / "demo" / "train.py").read_text())
        wait_until("the loop registers", lambda: live.registered([job.pid]))
        for _ in range(CAPTURES):
            begin = time.perf_counter()
            capture = live.profctl(
                "start", "--pid", str(job.pid), "--source", "kineto", "--force", "--duration", "500ms"
            )
            totals.append(time.perf_counter() - begin)
            (target,) = capture["targets"]
            if target["state"] != "stored":
                raise RuntimeError(f"{target['state']}: {target['message']}")
            spent = {phase["name"]: phase["duration_ns"] / 1e9 for phase in target["waterfall"]}
            for name, seconds in spent.items():
                phases[name].append(seconds)
            counts.append(target["events"])
            own.append(sum(seconds for name, seconds in spent.items() if name in OURS) / target["events"] * 50_000)
    yield Row(
        "capturing",
        f"500 ms capture of a training loop, {statistics.median(counts):,.0f} events: Enter to answer",
        f"{statistics.median(totals):.2f} s",
        note="  ".join(f"{name} {statistics.median(taken):.3f} s" for name, taken in phases.items()),
    )
    middle = statistics.median(own)
    what = "of it ours (pick-up, decode, store), per 50k events"
    yield Row("capturing", what, f"{middle * 1e3:.0f} ms", bar="<= 300 ms", met=middle <= BAR_SECONDS_PER_50K)
