"""CPU time of a sample of Python's stacks: profd's own reader, its peer py-spy, and the kernel's part alone.

The peer takes turns with ours, 100 samples a second of the same process. What both take until the first sample is told
apart. The floor is one call to process_vm_readv(2) for as many places and bytes, by this interpreter.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from bench.measure import Row
from tests.support.stack_reader import Read, program, read, read_by_pyspy

ROUNDS: Final = int(os.environ.get("PROFD_BENCH_STACKS_ROUNDS", "5"))
SECONDS: Final = 3
HZ: Final = 100
BARS: Final = {1: 0.6, 64: 0.1}  # threads: of py-spy's time
PLACES: Final = ((176, 1), (8, 2), (1600, 1))  # of a thread: bytes, how many
CALLS: Final = 2000

LOOP: Final = """
import threading, sys
never = threading.Event()
for _ in range(int(sys.argv[1]) - 1):
    threading.Thread(target=never.wait, daemon=True).start()
def step():
    total = 0
    for number in range(20_000):
        total += number * number
print("ready", flush=True)
while True:
    step()
"""


def rows(events: int) -> Iterator[Row]:
    """The rows of this case."""
    del events
    for threads in BARS:
        with program(sys.executable, LOOP, str(threads)) as job:
            yield from _rows(job.pid, threads)


def _rows(pid: int, threads: int) -> Iterator[Row]:
    ours, peers, starts, peer_starts = [], [], [], []
    for _ in range(ROUNDS):
        starts.append(_cost(lambda: read(pid, 1, 0.01))[0])
        peer_starts.append(_cost(lambda: read_by_pyspy(pid, 1, 1))[0])
        ours.append(_of_sample(_cost(lambda: read(pid, HZ, SECONDS)), starts[-1], threads))
        peers.append(_of_sample(_cost(lambda: read_by_pyspy(pid, HZ, SECONDS)), peer_starts[-1], threads))
    ratio = statistics.median(own / peer for own, peer in zip(ours, peers, strict=True))
    yield Row(
        "stacks",
        f"CPU time of a sample of {threads} threads, {ROUNDS} pairs with py-spy",
        f"{statistics.median(ours) * 1e3:.3f} ms ({ratio:.3f} of py-spy's)",
        bar=f"<= {BARS[threads]} of py-spy's",
        met=ratio <= BARS[threads],
        note=f"py-spy {statistics.median(peers) * 1e3:.2f} ms, floor {_floor(threads) * 1e3:.3f} ms; until the first "
        f"sample {statistics.median(starts) * 1e3:.0f} ms, py-spy {statistics.median(peer_starts) * 1e3:.0f} ms",
    )


def _cost(sampling: Callable[[], Awaitable[Read]]) -> tuple[float, Read]:
    """CPU seconds of the sampler, and what it read."""

    async def sampled() -> Read:
        return await sampling()

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = asyncio.run(sampled())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, found


def _of_sample(cost: tuple[float, Read], start: float, threads: int) -> float:
    counts = re.search(r"Samples: (\d+)", cost[1].said)
    return max(cost[0] - start, 0.0) / max(int(counts[1]) / threads, 1) if counts else 0.0


class _Place(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


def _floor(threads: int) -> float:
    """CPU seconds of a call for the places of so many threads, of this process's own memory."""
    sizes = [size for size, count in PLACES for _ in range(count)] * threads
    here = ctypes.create_string_buffer(sum(sizes))
    there = [ctypes.create_string_buffer(size) for size in sizes]
    local = _Place(ctypes.addressof(here), len(here))
    remote = (_Place * len(sizes))(*(_Place(ctypes.addressof(each), len(each)) for each in there))
    readv = ctypes.CDLL(None).process_vm_readv
    before = time.thread_time()
    for _ in range(CALLS):
        readv(os.getpid(), ctypes.byref(local), 1, remote, len(sizes), 0)
    return (time.thread_time() - before) / CALLS
