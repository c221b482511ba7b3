"""What samples cost (`--samples 100hz`): CPU time of a busy loop with and without, and of the sampler beside it."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from profd.sources.pyspy import tool

from bench.live import ask
from bench.measure import Row, spread

HZ = 100
PAIRS = 9
THREADS = (1, 64)
SECONDS = 600  # longer than any turn takes

# Fixed work in calls, 20 deep; one thread does it, the others wait.
LOOP = """
import sys, threading, time
for _ in range(int(sys.argv[1]) - 1):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
def call(depth, rounds):
    if depth:
        return call(depth - 1, rounds)
    total = 0
    for number in range(rounds):
        total += abs(-number)
    return total
for line in sys.stdin:
    begin = time.process_time()
    call(20, 15_000_000)
    print(time.process_time() - begin, flush=True)
"""


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    program = tool.find()
    if program is None:
        return
    for threads in THREADS:
        yield _paired(program, threads)


def _paired(program: Path, threads: int) -> Row:
    job = subprocess.Popen(
        [sys.executable, "-c", LOOP, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        ask(job, "")
        ratios, shares = [], []
        for pair in range(PAIRS):
            if pair % 2:
                taken, share = _sampled(program, job)
                alone = ask(job, "")
            else:
                alone = ask(job, "")
                taken, share = _sampled(program, job)
            ratios.append(taken / alone)
            shares.append(share)
    finally:
        job.kill()
        job.communicate()
    what = f"samples at {HZ} Hz of a busy loop with {threads} thread{'s' if threads > 1 else ''}"
    beside = f"the sampler takes {statistics.median(shares):.1%} of a core"
    return Row("sampling", f"{what}: its CPU time with / without", f"{spread(ratios)}x", note=beside)


def _sampled(program: Path, job: subprocess.Popen[str]) -> tuple[float, float]:
    """(CPU seconds of the work, share of a core that the sampler takes meanwhile)."""
    with tempfile.TemporaryDirectory() as folder:
        # As daemon/profd/sources/pyspy/recording.py does it.
        sampler = subprocess.Popen(
            [
                *(str(program), "record", "--pid", str(job.pid), "--format", "chrometrace"),
                *("--output", f"{folder}/samples.json", "--rate", str(HZ), "--duration", str(SECONDS)),
                *("--idle", "--threads", "--function", "--full-filenames", "--nonblocking"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert sampler.stdout is not None
        while "Sampling process" not in sampler.stdout.readline():
            assert sampler.poll() is None
        watched = psutil.Process(sampler.pid)
        before, begin = sum(watched.cpu_times()[:2]), time.perf_counter()
        taken = ask(job, "")
        share = (sum(watched.cpu_times()[:2]) - before) / (time.perf_counter() - begin)
        sampler.send_signal(2)
        sampler.communicate()
    return taken, share
