"""What a recording is charged for in the job's memory cgroup (usage, not RSS), and what first touches cost a range.

Needs root and a v1 memory controller at /sys/fs/cgroup/memory. `PROFD_BENCH_MEMORY_ROUNDS` processes each.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from bench.live import Live, profd, wait_until
from bench.measure import Row
from tests.support.memory_cgroup import MemoryCgroup, Unavailable, memory_cgroup

ROUNDS = int(os.environ.get("PROFD_BENCH_MEMORY_ROUNDS", "5"))
RANGES = 400_000  # of each thread
MB = 1_000_000
STREAMER_SECONDS = 0.25  # after the arm; by then one that runs has taken the arena up

# 24 MB. A line on standard input has it wait until it is recorded, and record so many ranges on so many threads.
JOB = """
import json, sys, threading, time
from array import array
ballast = b"x" * (10 << 20)
import profclient
from profclient import _recorder
profclient.attach()
now, record = time.perf_counter_ns, profclient.record_function
def ranges(took):
    before = now()
    for number in range(len(took)):
        with record("work"):
            pass
        after = now()
        took[number] = after - before
        before = after
print("ready", flush=True)
for line in sys.stdin:
    threads, count = map(int, line.split())
    took = [array("q", [1]) * count for _ in range(threads)]  # touched: it is not what is measured
    working = [threading.Thread(target=ranges, args=(each,)) for each in took]
    print("waiting", flush=True)
    while not _recorder.sources():
        time.sleep(0.0005)
    began = now()
    for each in working: each.start()
    for each in working: each.join()
    seconds, lost = (now() - began) / 1e9, _recorder.totals()["arena_full"]
    while _recorder.sources():
        time.sleep(0.01)
    print("recorded", flush=True)
    found = sorted(ns for each in took for ns in each) or [0]
    print(json.dumps({"rate": len(found) / seconds, "p50": found[len(found) // 2],
                      "p99.9": found[int(0.999 * len(found))], "lost": lost}), flush=True)
"""


@dataclass
class Found:
    """One recording of one process. Bytes are beyond what was charged before."""

    told: dict[str, float]
    at_streamer: int
    most: int


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    del events
    try:
        with profd() as live:
            _recording(live, 0, 0)  # the streamer runs from here on
            nothing = [_recording(live, 0, 0) for _ in range(ROUNDS)]
            yield _charged("24 MB job, nothing recorded", [found.most for found in nothing], 2)
            yield from _busy(live)
    except Unavailable as why:
        yield Row("memory", "charged to the job's cgroup", "not measured", note=str(why))


def _busy(live: Live) -> Iterator[Row]:
    one = [_recording(live, 1, RANGES) for _ in range(ROUNDS)]
    four = [_recording(live, 4, RANGES) for _ in range(ROUNDS)]
    for threads, found in ((1, one), (4, four)):
        rate = statistics.median(each.told["rate"] for each in found)
        first = statistics.median(each.at_streamer for each in found) / MB
        lost = sum(each.told["lost"] for each in found)
        yield _charged(
            f"{threads} threads, {rate / 1e6:.1f}M ranges/s in all, beyond what they touched before the streamer",
            [each.most - each.at_streamer for each in found],
            4,
            f"until {STREAMER_SECONDS} s after the arm {first:.1f} MB; {lost:.0f} lost",
        )
    times = sorted(each.told["p99.9"] for each in one)
    middle = statistics.median(each.told["p50"] for each in one)
    yield Row(
        "memory",
        f"a range in Python and two readings of the clock, first touches included: p99.9 of the first {RANGES:,}",
        f"{statistics.median(times):.0f} ns",
        note=f"{times[0]:.0f} to {times[-1]:.0f} in {ROUNDS} processes; p50 {middle:.0f} ns",
    )


def _charged(what: str, found: list[int], bar: int, note: str = "") -> Row:
    worst = max(found) / MB
    return Row(
        "memory",
        f"charged to the job's cgroup: {what}",
        f"{statistics.median(found) / MB:+.2f} MB",
        bar=f"<= +{bar} MB",
        met=worst <= bar,
        note=f"most of {len(found)} processes {worst:+.2f} MB" + (f"; {note}" if note else ""),
    )


def _recording(live: Live, threads: int, count: int) -> Found:
    with memory_cgroup() as group:
        job = live.job(f"import os\nopen({str(group.path / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))\n{JOB}")
        try:
            return _of(live, job, group, threads, count)
        finally:
            job.kill()
            job.wait()


def _of(live: Live, job: subprocess.Popen[str], group: MemoryCgroup, threads: int, count: int) -> Found:
    assert job.stdin is not None
    assert job.stdout is not None
    job.stdout.readline()
    wait_until("the job is attached", lambda: job.pid in live.attached())
    job.stdin.write(f"{threads} {count}\n")
    job.stdin.flush()
    job.stdout.readline()
    before = group.charged
    seen: list[tuple[float, int]] = []
    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(group, seen, over))
    watch.start()
    start = threading.Thread(target=live.profctl, args=("start", "--pid", str(job.pid), "--duration", "3s"))
    start.start()
    job.stdout.readline()
    over.set()
    watch.join()
    start.join()
    told: dict[str, float] = json.loads(job.stdout.readline())
    # From the first that is charged on: about when it was armed.
    armed = next((at for at, charged in seen if charged > before + 20_000), seen[0][0])
    early = [charged for at, charged in seen if at <= armed + STREAMER_SECONDS]
    return Found(told, max(early) - before, max(charged for _, charged in seen) - before)


def _watch(group: MemoryCgroup, seen: list[tuple[float, int]], over: threading.Event) -> None:
    while not over.wait(0.01):
        with suppress(OSError):
            seen.append((time.monotonic(), group.charged))
