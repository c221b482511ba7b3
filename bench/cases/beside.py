"""What samples beside captures cost jobs of 8 ranks of 64 threads: their steps, and the samplers' CPU time.

In each round a stretch of steps within a capture, which has nothing else to record than a range a step, and one
without, turn about. No step counts before the samplers have begun: their starts are told apart.
PROFD_BENCH_BESIDE_SECONDS (60) and PROFD_BENCH_BESIDE_ROUNDS (9): how long a window is, and how many there are.
"""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psutil
from profd.sources.pyspy import tool

from bench import pairing
from bench.live import Live, hear, profd, say, wait_until
from bench.measure import Row

RANKS, THREADS = 8, 64
WINDOW_SECONDS = float(os.environ.get("PROFD_BENCH_BESIDE_SECONDS", "60"))
ROUNDS = int(os.environ.get("PROFD_BENCH_BESIDE_ROUNDS", "9"))
# Of a window: that samplers have to begin, a few at a time, and in which steps count. The rest is the end's.
BEGINNING, MEASURED = 0.2, 0.7
JUDGED_SECONDS = 60.0  # in a shorter window the least that a sampler may take is more than its share
STEPS_BAR, CORES_BAR = 1.01, 0.01
BESIDE = "beside"

LOOP = f"""
import os, sys, threading, time
import profclient
profclient.attach()
never = threading.Event()
for _ in range({THREADS} - 1):
    threading.Thread(target=never.wait, daemon=True).start()
def step():
    with profclient.record_function("step"):
        total = 0
        for number in range(20_000):
            total += number * number
for line in sys.stdin:
    end, steps, begin = time.perf_counter() + float(line), 0, time.perf_counter()
    while time.perf_counter() < end:
        step()
        steps += 1
    print((time.perf_counter() - begin) * 1e9 / steps, flush=True)
"""


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    del events
    with profd() as live, ThreadPoolExecutor(1) as beside:
        jobs = [live.job(LOOP, enabled=False) for _ in range(RANKS)]
        wait_until("the jobs attach", lambda: {job.pid for job in jobs} <= live.attached())
        _turn(jobs, 2.0)
        taken: list[pairing.Round] = []
        captures: list[dict[str, Any]] = []
        for number in range(ROUNDS):
            ways = (pairing.WITHOUT, BESIDE) if number % 2 else (BESIDE, pairing.WITHOUT)
            found = {}
            for way in ways:
                capture = beside.submit(_capture, live, jobs) if way == BESIDE else None
                found[way] = _within(live, jobs, capture)
                if capture is not None:
                    captures.append(capture.result())
            taken.append(found)
    what = f"steps of {RANKS} ranks of {THREADS} threads in a capture with samples, without one, {ROUNDS} pairs"
    yield pairing.steps_row("beside", what, taken, BESIDE, STEPS_BAR)
    yield _cores(captures)


def _capture(live: Live, jobs: list[subprocess.Popen[str]]) -> dict[str, Any]:
    pids = [word for job in jobs for word in ("--pid", str(job.pid))]
    found: dict[str, Any] = live.profctl("start", *pids, "--duration", f"{WINDOW_SECONDS:g}s")
    return found


def _within(live: Live, jobs: list[subprocess.Popen[str]], capture: Future[dict[str, Any]] | None) -> float:
    """Mean ns of a step of all ranks, within a capture where there is one."""
    if capture is not None:
        latest = time.monotonic() + WINDOW_SECONDS * BEGINNING
        wait_until("the samplers begin", lambda: _samplers(live) >= RANKS or time.monotonic() > latest)
    return _turn(jobs, WINDOW_SECONDS * MEASURED)


def _samplers(live: Live) -> int:
    """Of our daemon: our own, and what has become py-spy."""
    found = 0
    for process in psutil.Process(live.daemon.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found += process.name() == "py-spy" or process.cmdline()[1:2] == [tool.READER]
    return found


def _turn(jobs: list[subprocess.Popen[str]], seconds: float) -> float:
    for job in jobs:
        say(job, str(seconds))
    return statistics.fmean(map(hear, jobs))


def _cores(captures: list[dict[str, Any]]) -> Row:
    cores = os.cpu_count() or 1
    said = [[target["cost"]["detail"] or "" for target in capture["targets"]] for capture in captures]
    # Of the whole window: a sampler that has taken its share ends before it.
    spent = [sum(_number(r"([\d.]+) s, [\d.e+-]+ % of one core", text) for text in of) for of in said]
    shares = [seconds / cores / WINDOW_SECONDS for seconds in spent]
    starts = [sum(_number(r"([\d.]+) s before its first sample", text) for text in of) for of in said]
    sampled = min(sum("% of one core" in text for text in of) for of in said)
    return Row(
        "beside",
        f"the samplers of these windows of {WINDOW_SECONDS:g} s: share of {cores} cores, their starts apart",
        f"{statistics.median(shares):.2%} (worst {max(shares):.2%})",
        bar=f"<= {CORES_BAR:.0%}",
        met=max(shares) <= CORES_BAR if sampled and WINDOW_SECONDS >= JUDGED_SECONDS else None,
        note=f"at least {sampled} of {RANKS} ranks were sampled; their starts took {statistics.median(starts):.2f} s",
    )


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    return float(found[1]) if found else 0.0
