"""Real PyTorch programs for `explain`, each recorded by torch.profiler into a file: clean ones, and planted troubles.

`python -m tests.corpus.answers.explained_programs FOLDER NAME…` runs these programs, and writes a NAME.json of each.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.corpus.answers import labels

STEPS: Final = 14
STEPS_OF_RHYTHM: Final = 32  # of programs that are slow now and then: five equal distances may still be chance
EVERY: Final = 4  # steps: one of so many is slow
SLOW_SECONDS: Final = 0.3
TROUBLES: Final = {name: label.finding for name, label in labels("profiler").items() if label.cause}
"""The finding that must come first, by program."""
CLEAN: Final = [name for name, label in labels("profiler").items() if not label.cause]

Step = Callable[[int], None]


def main() -> None:
    import torch

    torch.set_num_threads(1)
    with contextlib.suppress(PermissionError):  # its steps are what is looked at, and other tests run beside it
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    folder, *names = sys.argv[1:]
    for name in names:
        torch.manual_seed(0)
        record(Path(folder) / f"{name}.json", name)


def record(file: Path, name: str) -> None:
    """One program, warm when its recording begins."""
    from torch.profiler import ProfilerActivity, profile

    step = program(name)
    for number in range(3):
        step(number)
    with profile(
        activities=[ProfilerActivity.CPU], with_stack=name == "collects", profile_memory=name == "keeps_tensors"
    ) as profiler:
        for number in range(STEPS_OF_RHYTHM if name.endswith("_sometimes") else STEPS):
            step(number)
            profiler.step()
    profiler.export_chrome_trace(str(file))


def program(name: str) -> Step:
    """A step of the program; it is given its number."""
    if name.startswith("clean_"):
        _, model, optimizer = name.split("_")
        return _trains(model, optimizer)
    trouble: Step = globals()[f"_{name}"](_trains("mlp", "sgd"))
    return trouble


def _trains(kind: str, optimizer: str) -> Step:
    import torch
    from torch import nn

    width, batch = 256, 128
    model: Any = {
        "mlp": lambda: nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)),
        "deep": lambda: nn.Sequential(*(nn.Linear(width, width) for _ in range(12))),
        "convolution": lambda: nn.Sequential(
            nn.Unflatten(1, (1, 16, 16)), nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten()
        ),
        "recurrent": lambda: nn.GRU(width, width, 1),
        "attention": lambda: nn.TransformerEncoderLayer(width, 4, dropout=0.0),
        "embedding": lambda: nn.Sequential(nn.EmbeddingBag(1000, width), nn.Linear(width, width)),
        "norms": lambda: nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.BatchNorm1d(width), nn.GELU()),
        "autocast": lambda: nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)),
    }[kind]()
    made = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "rmsprop": torch.optim.RMSprop}[optimizer]
    foreach = {"foreach": True} if kind in ("deep", "attention") else {}
    optimiser = made(model.parameters(), lr=0.001, **foreach)
    indices = torch.randint(0, 1000, (batch, 16))
    inputs = {"embedding": indices, "recurrent": torch.randn(8, batch, width), "attention": torch.randn(8, 16, width)}
    data = inputs.get(kind, torch.randn(batch, width))

    def step(number: int) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=kind == "autocast"):
            out = model(data)
        out = out[0] if isinstance(out, tuple) else out
        out.float().square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def _loader(workers: int) -> Iterator[Any]:
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Slow(Dataset[Any]):
        def __len__(self) -> int:
            return 10_000

        def __getitem__(self, index: int) -> Any:
            time.sleep(0.005)
            return torch.ones(4)

    return iter(DataLoader(Slow(), batch_size=8, num_workers=workers))


def _waits_for_data(step: Step, workers: int = 0) -> Step:
    batches = _loader(workers)

    def slow(number: int) -> None:
        next(batches)
        step(number)

    return slow


def _waits_for_workers(step: Step) -> Step:
    return _waits_for_data(step, workers=1)


def _sometimes(step: Step, trouble: Callable[[], object]) -> Step:
    def slow(number: int) -> None:
        step(number)
        if number % EVERY == 2:
            trouble()

    return slow


def _sorts_sometimes(step: Step) -> Step:
    import torch

    numbers = torch.randn(2_000_000)
    return _sometimes(step, numbers.sort)


def _sleeps_sometimes(step: Step) -> Step:
    return _sometimes(step, lambda: time.sleep(SLOW_SECONDS))


def _collects(step: Step) -> Step:
    def slow(number: int) -> None:
        step(number)
        gc.collect()

    return slow


def _recompiles(step: Step) -> Step:
    import torch

    compiled = torch.compile(lambda x: (x * 2).sin().sum(), backend="eager", dynamic=False)

    def slow(number: int) -> None:
        step(number)
        if number % EVERY == 2:
            compiled(torch.ones(8 + number, 2))

    return slow


def _converts(step: Step) -> Step:
    import torch

    values = torch.randn(300_000)

    def slow(number: int) -> None:
        step(number)
        for _ in range(12):
            values.double().float()

    return slow


def _updates_one_by_one(step: Step) -> Step:
    import torch

    parameters = [torch.nn.Parameter(torch.randn(8)) for _ in range(200)]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False, fused=False)

    def slow(number: int) -> None:
        for parameter in parameters:
            parameter.grad = torch.ones(8)
        optimizer.step()

    return slow


def _keeps_tensors(step: Step) -> Step:
    import torch

    kept = []

    def slow(number: int) -> None:
        step(number)
        kept.append(torch.zeros(300_000))

    return slow


if __name__ == "__main__":
    main()
