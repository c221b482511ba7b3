"""Ingest: four processes that record at once, live, through everything there is; and the streamer's work alone.

PROFD_BENCH_INGEST_SECONDS (60) is the length of the window, PROFD_BENCH_INGEST_RATE (2.4e6) the events per second of
all processes together. With PROFD_BENCH_SOAK_SECONDS ingest alone, without storing traces, runs for so long as well.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import psutil

from bench.live import Live, profd, wait_until
from bench.measure import Row, child

JOBS = 4
SOAK_SECONDS = float(os.environ.get("PROFD_BENCH_SOAK_SECONDS", "0"))
SOAK_PAUSE_SECONDS = 0.007  # 3M events a second where nothing else runs
SECONDS = float(os.environ.get("PROFD_BENCH_INGEST_SECONDS", "60"))
RATE = float(os.environ.get("PROFD_BENCH_INGEST_RATE", "2.4e6"))
BAR_RATE = 2e6
BAR_RSS_BYTES = 400e6
BAR_ENCODE_NS = 40

JOB = """
import sys, time
import profclient
profclient.attach()
range_ = profclient.record_function
names = [f"layer.{number}" for number in range(40)]
burst = 2000
due = time.monotonic()
while True:
    for number in range(burst // 4):
        with range_("step"):
            with range_(names[number % 40]):
                pass
            with range_("optimizer"):
                with range_("kernel"):
                    pass
    due = max(due + burst / RATE, time.monotonic() - 0.1)
    time.sleep(max(0.0, due - time.monotonic()))
"""


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    yield _encoding(events)
    with profd() as live:
        yield from _live(live)
    if SOAK_SECONDS:
        yield _soak()


def _encoding(events: int) -> Row:
    took = child("bench.ours.encoding:arena", {"events": events})["result"]
    return Row(
        "ingest",
        "drain, encode and compress in the streamer, per event",
        f"{took['ours_ns']:.1f} ns",
        floor=f"{took['floor_ns']:.1f} ns (copying the slots)",
        bar=f"<= {BAR_ENCODE_NS} ns",
        met=took["ours_ns"] <= BAR_ENCODE_NS,
        note=f"{took['bytes']:.2f} bytes an event on the wire; CPU time, best of 7",
    )


def _soak() -> Row:
    arguments = {"seconds": SOAK_SECONDS, "pause_seconds": SOAK_PAUSE_SECONDS}
    took = child("bench.ours.soaking:soak", arguments)["result"]
    first, last, most = _thirds(took["memory"])
    return Row(
        "ingest",
        f"ingest alone, {SOAK_SECONDS:g} s: events a second, memory",
        f"{took['rate'] / 1e6:.2f}M, {took['lost']} of {took['recorded']} lost, {most / 1e6:.0f} MB at most",
        bar=">= 2M, none lost, <= 400 MB and flat",
        met=took["rate"] >= BAR_RATE and took["stored"] == took["recorded"] and most <= BAR_RSS_BYTES,
        note=f"first third {first / 1e6:.0f} MB, last third {last / 1e6:.0f} MB; "
        f"cores used: daemon {took['daemon_cores']:.2f}, streamer {took['streamer_cores']:.2f}",
    )


@dataclass
class Watched:
    """What the processes used while the window was open."""

    seconds: float = 0.0
    daemon_cpu: float = 0.0
    streamer_cpu: float = 0.0
    jobs_cpu: float = 0.0
    daemon_rss: list[int] = field(default_factory=list)
    streamer_rss: list[int] = field(default_factory=list)


def _live(live: Live) -> Iterator[Row]:
    jobs = [live.job(JOB.replace("RATE", repr(RATE / JOBS)), enabled=False) for _ in range(JOBS)]
    wait_until("the jobs attach", lambda: {job.pid for job in jobs} <= live.attached())
    pids = [argument for job in jobs for argument in ("--pid", str(job.pid))]
    with ThreadPoolExecutor(1) as thread:
        asked = ("start", *pids, "--source", "sdk", "--duration", f"{SECONDS:g}s", "--force")
        capture = thread.submit(live.profctl, *asked)
        used = _watch(live, [psutil.Process(job.pid) for job in jobs], capture)
        targets = capture.result()["targets"]
    whole = [target["state"] for target in targets]
    stored = sum(target["events"] for target in targets)
    lost = sum(loss["count"] for target in targets for loss in target["lost"])
    rate = stored / SECONDS
    what = f"ingest recorded live by {JOBS} processes, {SECONDS:g} s"
    yield Row(
        "ingest",
        f"{what}: events a second",
        f"{rate / 1e6:.2f}M, {lost} lost",
        bar=">= 2M, none lost",
        met=rate >= BAR_RATE and lost == 0,
        note=f"states {', '.join(whole)}; cores used: daemon {_cores(used.daemon_cpu, used)}, "
        f"streamer {_cores(used.streamer_cpu, used)}, jobs {_cores(used.jobs_cpu, used)}",
    )
    first, last, most = _thirds(used.daemon_rss)
    yield Row(
        "ingest",
        f"{what}: memory of the daemon",
        f"{most / 1e6:.0f} MB at most",
        bar="<= 400 MB, flat",
        met=most <= BAR_RSS_BYTES,
        note=f"first third {first / 1e6:.0f} MB, last third {last / 1e6:.0f} MB; "
        f"streamer {max(used.streamer_rss) / 1e6:.0f} MB without the arenas it maps",
    )


def _watch(live: Live, jobs: list[psutil.Process], capture: Future[Any]) -> Watched:
    """Look at everything once a second, from the streamer's first second to the end of the window."""
    daemon = psutil.Process(live.daemon.pid)
    wait_until("the streamer starts", lambda: _streamer(daemon) is not None or capture.done())
    streamer = _streamer(daemon)
    if streamer is None:
        raise RuntimeError(f"nothing was recorded: {capture.result()}")
    used = Watched()
    begin = time.monotonic()
    before = [_cpu(daemon), _cpu(streamer), sum(map(_cpu, jobs))]
    while time.monotonic() - begin < SECONDS - 2 and not capture.done():
        time.sleep(1)
        used.daemon_rss.append(daemon.memory_info().rss)
        memory = streamer.memory_info()
        used.streamer_rss.append(memory.rss - memory.shared)
    after = [_cpu(daemon), _cpu(streamer), sum(map(_cpu, jobs))]
    used.seconds = time.monotonic() - begin
    used.daemon_cpu, used.streamer_cpu, used.jobs_cpu = (b - a for a, b in zip(before, after, strict=True))
    return used


def _streamer(daemon: psutil.Process) -> psutil.Process | None:
    return next((one for one in daemon.children() if "profd.attached.ingest.streamer" in one.cmdline()), None)


def _cpu(process: psutil.Process) -> float:
    return sum(process.cpu_times()[:2])


def _cores(cpu: float, used: Watched) -> str:
    return f"{cpu / used.seconds:.2f}"


def _thirds(values: list[int]) -> tuple[float, float, int]:
    """Means of the first and the last third, and the most."""
    third = max(1, len(values) // 3)
    return sum(values[:third]) / third, sum(values[-third:]) / third, max(values)
