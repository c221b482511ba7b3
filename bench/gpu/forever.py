"""`python -m bench.gpu.forever truth|launch_bound|gpu_bound|graph`: works until its standard input ends.

Says "ready" when it has begun. `truth` needs no PyTorch.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable


def main() -> None:
    """Until standard input ends, or somebody kills it."""
    work = _work(sys.argv[1])
    work()
    print("ready", flush=True)
    while not select.select([0], [], [], 0.001)[0]:
        work()


def _work(name: str) -> Callable[[], object]:
    """A step of a loop, or the program of known truth."""
    if name == "truth":
        from bench.gpu.driver import Driver
        from bench.gpu.program import Program

        return Program(Driver(os.environ.get("PROFD_BENCH_CUDA", "libcuda.so.1"))).work
    from bench.gpu.loops import LOOPS

    return LOOPS[name]()


if __name__ == "__main__":
    main()
