"""Real jobs of PyTorch over gloo, each rank recorded by torch.profiler into a file: clean ones, and with a late rank.

`python -m tests.support.gloo_jobs FOLDER KIND RANK RANKS` is one rank of a job.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

STEPS: Final = 80
LATE: Final = 1  # the rank with the plant
NAP_SECONDS: Final = 0.003
PLANTS: Final = {"clean": "", "sorts": "aten::sort", "naps": "function sleep"}
"""What is planted in rank LATE, by the kind of the job: a word of the name that a cause must have."""


def run(folder: Path, kind: str, ranks: int) -> list[Path]:
    """Run a job to its end; the files of its ranks. CalledProcessError where one fails."""
    command = [sys.executable, "-m", "tests.support.gloo_jobs", str(folder), kind]
    started = [
        subprocess.Popen([*command, str(rank), str(ranks)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for rank in range(ranks)
    ]
    for process in started:
        if process.wait(300):
            raise subprocess.CalledProcessError(process.returncode, process.args)
    return [folder / f"rank{rank}.json" for rank in range(ranks)]


def nap() -> None:
    """Does no operator's work."""
    time.sleep(NAP_SECONDS)


def main() -> None:
    """One rank."""
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile

    folder, kind, rank, ranks = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", init_method=f"file://{folder}/met", rank=rank, world_size=ranks)
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(6)])
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    inputs, numbers = torch.randn(64, 256), torch.randn(40_000)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        if rank == LATE and kind == "sorts":
            for _ in range(2):
                numbers.sort()
        if rank == LATE and kind == "naps":
            nap()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()

    for _ in range(3):
        step()
    dist.barrier()
    with profile(activities=[ProfilerActivity.CPU], with_stack=kind == "naps") as profiler:
        for _ in range(STEPS):
            step()
            profiler.step()
    profiler.export_chrome_trace(str(folder / f"rank{rank}.json"))
    dist.barrier()


if __name__ == "__main__":
    main()
