"""Real jobs of PyTorch over gloo, each rank recorded by torch.profiler into a file: clean ones, and with a late rank.

`python -m tests.corpus.answers.gloo_jobs FOLDER KIND RANK RANKS [SEED [prompt]]` is one rank of a job. With SEED,
blocks of steps with the plant and without it take turns by chance, in one window: what a host does meanwhile it does
to both. `prompt` takes the scheduling class SCHED_RR, which needs root: its threads get a core as soon as they are
woken, whatever else runs.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.corpus.answers import labels, late_programs, late_programs_unseen

if TYPE_CHECKING:
    import torch

STEPS: Final = 80
LATE: Final = 1  # the rank with the plant
BLOCK, BLOCKS = 4, 300  # steps that are alike; of a job with a seed: means of fewer say too little
BLOCKS_OF_A_PROGRAM: Final = 100
NAP_SECONDS: Final = 0.003
LIMIT_SECONDS: Final = 120  # of a job
LIMIT_SECONDS_IN_TURNS: Final = 300
PLANTS: Final = {name: "".join(one.says) for name, one in labels("ranks").items() if one.says or not one.cause}
"""What is planted in rank LATE, by the kind of the job: a word of the name that a cause must have."""
LATER: Final = tuple(name for name, one in labels("ranks").items() if one.cause)
"""Plants that take turns; `collectives`: rank LATE comes late to each of the collectives of a step; `waits`: all ranks
wait as for a device, rank LATE longer, so that no core is busy with the job.
"""
PROGRAMS: Final = {**late_programs.KINDS, **late_programs_unseen.KINDS}
"""Others, that take turns as well."""
WAITS_SECONDS: Final = (0.006, 0.009)  # before each of two collectives
WAITS_LATER_SECONDS: Final = 0.005


def run(folder: Path, kind: str, ranks: int) -> list[Path]:
    """Run a job to its end; the files of its ranks.

    Raises CalledProcessError where one fails, TimeoutExpired where it does not end.
    """
    _run(folder, kind, ranks)
    return [folder / f"rank{rank}.json" for rank in range(ranks)]


def run_in_turns(folder: Path, kind: str, ranks: int, seed: int, *, prompt: bool = False) -> list[Path]:
    """The same of a job with a seed."""
    _run(folder, kind, ranks, str(seed), *["prompt"][: int(prompt)])
    return [folder / f"rank{rank}.json" for rank in range(ranks)]


def planted(kind: str, seed: int) -> list[bool]:
    """Of each step; in one of each two blocks, so that both see the same host."""
    chance = random.Random(seed)
    blocks = BLOCKS_OF_A_PROGRAM if kind in PROGRAMS else BLOCKS
    pairs = [chance.sample([True, False], 2) for _ in range(blocks // 2)]
    return [one for pair in pairs for one in pair for _ in range(BLOCK)]


def _run(folder: Path, kind: str, ranks: int, *seed: str) -> None:
    command = [sys.executable, "-m", "tests.corpus.answers.gloo_jobs", str(folder), kind]
    started = [
        subprocess.Popen([*command, str(rank), str(ranks), *seed], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for rank in range(ranks)
    ]
    until = time.monotonic() + (LIMIT_SECONDS_IN_TURNS if seed else LIMIT_SECONDS)
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


def _planted_step(kind: str, rank: int) -> late_programs.Step:
    import torch
    import torch.distributed as dist

    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(6)])
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    inputs, numbers = torch.randn(64, 256), torch.randn(40_000)

    def step(with_plant: bool) -> None:
        late = kind if with_plant and rank == LATE else ""
        if kind == "waits":
            for seconds in WAITS_SECONDS:
                time.sleep(seconds + (WAITS_LATER_SECONDS if late else 0.0))
                dist.all_reduce(numbers)
            optimizer.step()
            return
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

    return step


def _profiled(kind: str, in_turns: bool, steps: int, file: Path) -> torch.profiler.profile:
    """Programs have a schedule, which marks steps: not all of them have an optimizer."""
    from torch.profiler import ProfilerActivity, profile, schedule

    return profile(
        activities=[ProfilerActivity.CPU],
        with_stack=kind == "naps" and not in_turns,
        schedule=schedule(wait=0, warmup=1, active=steps, repeat=1) if kind in PROGRAMS else None,
        on_trace_ready=lambda done: done.export_chrome_trace(str(file)),
    )


def main() -> None:
    """One rank."""
    import torch
    import torch.distributed as dist
    import torch.profiler

    folder, kind, rank, ranks = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    if sys.argv[6:] == ["prompt"]:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))  # threads inherit it
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", init_method=f"file://{folder}/met", rank=rank, world_size=ranks)
    in_turns = len(sys.argv) > 5
    steps = planted(kind, int(sys.argv[5])) if in_turns else [True] * STEPS
    program = PROGRAMS.get(kind)
    step = program() if program else _planted_step(kind, rank)
    for _ in range(3):
        step(program is None)
    dist.barrier()
    with _profiled(kind, in_turns, len(steps), folder / f"rank{rank}.json") as profiler:
        if program:  # its schedule begins with a step that is not recorded
            step(False)
            profiler.step()
        for one in steps:
            step(one and (rank == LATE or not program))
            profiler.step()
    dist.barrier()


if __name__ == "__main__":
    main()
