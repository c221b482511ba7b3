"""A 500 ms capture of a real JAX process: from its reply to what the user has of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from bench.live import profd, wait_until
from bench.measure import Row
from tests.support.jax_jobs import JAX_PYTHON, jax_job

CAPTURES = 9
BAR_SECONDS = 0.050


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    del events
    what = "500 ms of a JAX process: from the last byte of its reply to the stored trace"
    if not JAX_PYTHON.exists():
        yield Row("replying", what, "not measured", note=f"no jax at {JAX_PYTHON}: make .venv-jax/.installed")
        return
    stored, returned, counts, ours = [], [], [], []
    with profd() as live, jax_job() as job:
        pid = str(job.pid)
        wait_until("its profiler server is found", lambda: "jax" in live.profctl("ps", "--pid", pid)[0]["sources"])
        for _ in range(CAPTURES):
            capture = live.profctl("start", "--pid", pid, "--duration", "500ms")
            ended_ns = time.time_ns()
            (target,) = capture["targets"]
            if target["state"] != "stored":
                raise RuntimeError(f"{target['state']}: {target['message']}")
            spent = {phase["name"]: phase["duration_ns"] for phase in target["waterfall"]}
            replied_ns = target["end_ns"] + spent["collecting"]
            stored.append((capture["finished_ns"] - replied_ns) / 1e9)
            returned.append((ended_ns - replied_ns) / 1e9)
            ours.append((spent["decode"] + spent["store"]) / 1e9)
            counts.append(target["events"])
    middle = statistics.median(stored)
    yield Row(
        "replying",
        f"{what}, {statistics.median(counts):,.0f} events",
        f"{middle * 1e3:.0f} ms",
        bar=f"<= {BAR_SECONDS * 1e3:g} ms",
        met=middle <= BAR_SECONDS,
        note=f"{statistics.median(ours) * 1e3:.0f} ms of it decode and store; until profctl has ended "
        f"{statistics.median(returned) * 1e3:.0f} ms; {min(stored) * 1e3:.0f} to {max(stored) * 1e3:.0f} ms",
    )
