"""Real jobs of PyTorch over gloo, each rank recorded by torch.profiler into a file: clean ones, and with a late rank.

`python -m tests.support.gloo_jobs FOLDER KIND RANK RANKS [TURNS]` is one rank of a job. With TURNS there are as many
windows with the plant and without it, in one process: what a host does meanwhile it does to both. Which of two comes
first changes from pair to pair: a host that calms down favours neither.
"""

from __future__ import annotations

import itertools
import operator
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

STEPS: Final = 80
LATE: Final = 1  # the rank with the plant
STEPS_OF_A_TURN: Final = 30
NAP_SECONDS: Final = 0.003
LIMIT_SECONDS: Final = 120  # of a job
PLANTS: Final = {"clean": "", "sorts": "aten::sort", "naps": "function sleep"}
"""What is planted in rank LATE, by the kind of the job: a word of the name that a cause must have."""
LATER: Final = ("sorts", "naps", "collectives")
"""Plants that are taken out in turns; `collectives`: rank LATE comes late to each of the collectives of a step."""


def run(folder: Path, kind: str, ranks: int) -> list[Path]:
    """Run a job to its end; the files of its ranks.

    Raises CalledProcessError where one fails, TimeoutExpired where it does not end.
    """
    _run(folder, kind, ranks)
    return [folder / f"rank{rank}.json" for rank in range(ranks)]


def run_in_turns(folder: Path, kind: str, ranks: int, turns: int) -> tuple[list[list[Path]], list[list[Path]]]:
    """The files of each window with the plant, and of each without it."""
    _run(folder, kind, ranks, str(turns))
    files = [[folder / f"rank{rank}-{window}.json" for rank in range(ranks)] for window in range(2 * turns)]
    planted = [_planted(window) for window in range(2 * turns)]
    return list(itertools.compress(files, planted)), list(itertools.compress(files, map(operator.not_, planted)))


def _planted(window: int) -> bool:
    return window % 4 in (0, 3)


def _run(folder: Path, kind: str, ranks: int, *turns: str) -> None:
    command = [sys.executable, "-m", "tests.support.gloo_jobs", str(folder), kind]
    started = [
        subprocess.Popen(
            [*command, str(rank), str(ranks), *turns], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for rank in range(ranks)
    ]
    until = time.monotonic() + LIMIT_SECONDS
    try:
        for process in started:
            if process.wait(max(until - time.monotonic(), 0)):
                raise subprocess.CalledProcessError(process.returncode, process.args)
    finally:  # a rank alone waits for the others for half an hour
        for process in started:
            process.kill()
            process.wait()


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

    def step(planted: bool = True) -> None:
        late = kind if planted and rank == LATE else ""
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        if late == "sorts":
            for _ in range(2):
                numbers.sort()
        if late == "naps":
            nap()
        for parameter in model.parameters():
            if late == "collectives":
                numbers[:8_000].sort()
            dist.all_reduce(parameter.grad)
        optimizer.step()

    for _ in range(3):
        step()
    turns = int(sys.argv[5]) if len(sys.argv) > 5 else 0
    for window in range(2 * turns or 1):
        dist.barrier()
        with profile(activities=[ProfilerActivity.CPU], with_stack=kind == "naps") as profiler:
            for _ in range(STEPS_OF_A_TURN if turns else STEPS):
                step(planted=_planted(window))
                profiler.step()
        profiler.export_chrome_trace(str(folder / (f"rank{rank}-{window}.json" if turns else f"rank{rank}.json")))
    dist.barrier()


if __name__ == "__main__":
    main()
