"""What an idle daemon costs: its own process, and the training loops that are registered with it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import psutil

from bench.live import Live, ask, profd, wait_until
from bench.measure import Row, spread

PROCESSES = 8
WATCHED_SECONDS = 20.0
PAIRS = 7

WAITER = "import torch, time\nwhile True: time.sleep(60)"

STEPS = """
import statistics, sys, time
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, labels = torch.randn(32, 64), torch.randint(0, 10, (32,))
def step():
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
for _ in range(500): step()
for line in sys.stdin:
    times = []
    for _ in range(1500):
        begin = time.perf_counter(); step(); times.append(time.perf_counter() - begin)
    print(statistics.median(times), flush=True)
"""


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    with profd() as live:
        yield from _daemon(live)
        yield from _steps(live)


def _daemon(live: Live) -> Iterator[Row]:
    jobs = [live.job(WAITER) for _ in range(PROCESSES)]
    wait_until("the jobs register", lambda: live.registered([job.pid for job in jobs]))
    process = psutil.Process(live.daemon.pid)
    family = [process, *process.children(recursive=True)]
    before = sum(sum(one.cpu_times()[:2]) for one in family)
    time.sleep(WATCHED_SECONDS)
    share = (sum(sum(one.cpu_times()[:2]) for one in family) - before) / WATCHED_SECONDS
    own, all_of_it = process.memory_info().rss, sum(one.memory_info().rss for one in family)
    what = f"idle with {PROCESSES} registered processes that poll every second"
    yield Row("idle", f"{what}: share of a core", f"{share:.2%}", bar="< 1 %", met=share < 0.01)
    shown = f"{own / 1e6:.0f} MB (with its waiting workers {all_of_it / 1e6:.0f} MB)"
    yield Row("idle", f"{what}: memory", shown, bar="< 150 MB", met=own < 150e6)


def _steps(live: Live) -> Iterator[Row]:
    """Three loops, turn about: registered with us, Kineto's daemon mode on with no daemon, and without that mode."""
    on, alone, off = live.job(STEPS), live.job(STEPS, alone=True), live.job(STEPS, False)
    wait_until("the loop registers", lambda: live.registered([on.pid]))
    ours, mode = [], []
    for turn in range(PAIRS):
        order = (on, alone, off) if turn % 2 else (off, alone, on)
        taken = {job.pid: ask(job, "go") for job in order}
        ours.append(taken[on.pid] / taken[alone.pid])
        mode.append(taken[alone.pid] / taken[off.pid])
    for what, ratios, bar in (
        ("registered to KINETO_USE_DAEMON without a daemon", ours, "1.00 within noise"),
        ("KINETO_USE_DAEMON without a daemon to neither (libkineto's own cost)", mode, ""),
    ):
        middle = statistics.median(ratios)
        yield Row(
            "idle",
            f"training step of 0.2 ms, {what}, medians of {PAIRS} turns",
            f"{middle:.3f}x",
            ratio=middle,
            bar=bar,
            note=f"turns: {spread(ratios)}",
        )
