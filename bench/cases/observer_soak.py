"""A process that runs 500k PyTorch ops a second, recorded for as long as asked through a real daemon.

Part of the case `observer`: memory of the job, losses, and how the trace is stored.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.live import profd, wait_until
from bench.measure import Row

RATE = 500_000
BAR_GROWTH_BYTES = 64 << 20
SETTLE_SECONDS = 5.0  # after the begin: the arena has become resident

# Bursts of ops at the rate asked for, until its standard input ends.
JOB = """
import sys, threading, time
import profclient
profclient.attach()
import torch
torch.set_num_threads(1)
done = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), done.set()), daemon=True).start()
target, operand = torch.ones(4), torch.ones(4)
for _ in range(1000):
    target.add_(operand)
print("ready", flush=True)
burst = RATE // 200
due = time.monotonic()
while not done.is_set():
    for _ in range(burst):
        target.add_(operand)
    due = max(due + burst / RATE, time.monotonic() - 0.05)
    time.sleep(max(0.0, due - time.monotonic()))
"""


@dataclass
class Watched:
    """The job's memory, bytes: before, and once a second while it was recorded; all, and without the arena."""

    before: int = 0
    resident: list[int] = field(default_factory=list)
    own: list[int] = field(default_factory=list)


def soak(seconds: float) -> Iterator[Row]:
    """The rows of one recording of so many seconds."""
    with profd() as live:
        job = live.job(JOB.replace("RATE", str(RATE)), enabled=False)
        assert job.stdout is not None
        job.stdout.readline()
        wait_until("the job attaches", lambda: job.pid in live.attached())
        watched = Watched(before=psutil.Process(job.pid).memory_info().rss)
        asked = (
            "start",
            "--pid",
            str(job.pid),
            "--source",
            "sdk",
            "--torch",
            "observer",
            "--duration",
            f"{seconds:g}s",
        )
        with ThreadPoolExecutor(1) as thread:
            capture = thread.submit(live.profctl, *asked, "--force")
            _watch(psutil.Process(job.pid), capture, watched)
            [target] = capture.result()["targets"]
        segments = sorted((live.folder / "s").rglob(f"{target['trace']}/segment-*.parquet"))
        yield _rate(target, seconds, segments)
        yield _memory(watched, seconds)


def _watch(job: psutil.Process, capture: Future[Any], watched: Watched) -> None:
    while not capture.done():
        memory = job.memory_info()
        watched.resident.append(memory.rss)
        watched.own.append(memory.rss - memory.shared)
        time.sleep(1)


def _rate(target: dict[str, Any], seconds: float, segments: list[Path]) -> Row:
    lost = sum(loss["count"] for loss in target["lost"])
    rate = target["events"] / seconds
    starved = rate < 0.97 * RATE and lost == 0  # the job itself ran no more ops
    return Row(
        "observer",
        f"one process recorded for {seconds:g} s: ops a second",
        f"{rate / 1e3:,.0f}k, {lost} of {target['events'] + lost:,} lost",
        bar=f">= {RATE // 1000}k, none lost, in segments",
        met=None if starved else lost == 0 and len(segments) > 0,
        note=f"state {target['state']}; {len(segments)} segments, "
        f"{sum(path.stat().st_size for path in segments) / 1e6:,.0f} MB"
        + ("; the job had not the CPU for more ops" if starved else ""),
    )


def _memory(watched: Watched, seconds: float) -> Row:
    settled = int(min(SETTLE_SECONDS, len(watched.own) / 2))
    third = max(1, (len(watched.own) - settled) // 3)
    first = statistics.fmean(watched.own[settled : settled + third])
    last = statistics.fmean(watched.own[-third:])
    growth = max(watched.resident) - watched.before
    return Row(
        "observer",
        f"one process recorded for {seconds:g} s: memory of the job",
        f"+{growth / (1 << 20):.0f} MiB at most",
        bar=f"<= {BAR_GROWTH_BYTES >> 20} MiB over what it had before, flat",
        met=growth <= BAR_GROWTH_BYTES,
        note=f"before {watched.before / 1e6:.0f} MB; without the arena, which is 64 MiB: first third "
        f"{first / 1e6:.1f} MB, last third {last / 1e6:.1f} MB",
    )
