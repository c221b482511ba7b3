"""`python -m bench.gpu.forever truth|[profiled_]capturing|profiled|LOOP|TROUBLE [timed]`: works until its input ends.

Loops are those of bench/gpu/loops.py, troubles those of bench/gpu/troubles.py.

Says "ready" when it has begun. `truth` needs no PyTorch. `timed`: at the end it says when each step began, and how long
it took, in ns.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable


def main() -> None:
    """Until standard input ends, or somebody kills it."""
    work = _work(sys.argv[1])
    work()
    print("ready", flush=True)
    if sys.argv[2:] == ["timed"]:
        print(json.dumps(_timed(work)))
        return
    while not _ended():
        work()


def _ended() -> bool:
    return bool(select.select([0], [], [], 0.001)[0])


def _timed(work: Callable[[], object]) -> list[tuple[int, int]]:
    from bench.gpu import device

    taken = []
    while not _ended():
        begin, from_ns = time.time_ns(), time.perf_counter_ns()
        work()
        device.synchronize()
        taken.append((begin, time.perf_counter_ns() - from_ns))
    return taken


def _work(name: str) -> Callable[[], object]:
    """A step of a loop, or the program of known truth."""
    if name == "truth":
        from bench.gpu.driver import Driver
        from bench.gpu.program import Program

        return Program(Driver(os.environ.get("PROFD_BENCH_CUDA", "libcuda.so.1"))).work
    from bench.gpu.loops import LOOPS, capturing
    from bench.gpu.troubles import TROUBLES

    if name == "profiled":
        return _profiled(LOOPS["launch_bound"]())
    if name == "profiled_capturing":
        return _profiled(capturing())
    return {**LOOPS, **TROUBLES, "capturing": capturing}[name]()


def _profiled(step: Callable[[], None]) -> Callable[[], None]:
    """A loop whose first step was under torch.profiler."""
    from torch.profiler import ProfilerActivity, profile

    from bench.gpu import device

    with profile(activities=list({ProfilerActivity.CPU, *device.profiled()})):
        step()
        device.synchronize()
    return step


if __name__ == "__main__":
    main()
