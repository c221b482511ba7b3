"""Run in a process of its own: profile a small model, write its traces and torch's own key averages.

python torch_capture.py FOLDER CAPTURE…   where a capture is options with a plus: shapes+stacks
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function, schedule

STACK_FRAMES = 5
SYMBOL = "_Z9vectorAddPKfS0_Pfi"


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 4, 3, padding=1)
        self.layers = torch.nn.Sequential(torch.nn.Linear(256, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.conv(images).flatten(1)
        square = features.view(-1, 16, 16)
        mixed = torch.bmm(square, square).flatten(1)
        return self.layers(torch.cat([mixed, mixed]))[: len(images)]


def averages(profiler: profile, **grouping: Any) -> list[dict[str, object]]:
    return [
        {
            "name": row.key,
            "device_type": row.device_type.name,
            "shapes": str(row.input_shapes),
            "count": row.count,
            "cpu_ns": round(row.cpu_time_total * 1000),
            "self_cpu_ns": round(row.self_cpu_time_total * 1000),
            "flops": row.flops,
            "cpu_bytes": row.cpu_memory_usage,
            "self_cpu_bytes": row.self_cpu_memory_usage,
            "stack": row.stack,
        }
        for row in profiler.key_averages(**grouping)
    ]


def train_elsewhere(images: torch.Tensor, labels: torch.Tensor) -> None:
    model = Model()
    for _ in range(4):
        torch.nn.functional.cross_entropy(model(images), labels).backward()


def capture(folder: Path, wanted: list[str]) -> None:
    folder.mkdir()
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, labels = torch.randn(8, 1, 8, 8), torch.randint(0, 10, (8,))
    second = threading.Thread(target=train_elsewhere, args=(images, labels))
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=3, repeat=1) if "steps" in wanted else None,
        record_shapes="shapes" in wanted,
        with_flops="shapes" in wanted,
        with_stack="stacks" in wanted,
        profile_memory="memory" in wanted,
        # Call stacks are in the file only with it.
        experimental_config=_ExperimentalConfig(verbose=True) if "verbose" in wanted else None,
    ) as profiler:
        if "threads" in wanted:
            second.start()
        for _ in range(4):
            with record_function("forward"):
                loss = torch.nn.functional.cross_entropy(model(images), labels)
            with record_function("forward"), record_function("forward"):
                loss = loss * 2 + loss.sum()
            if "symbols" in wanted:  # the second, as it was written, wraps the first
                with record_function("vectorAdd(float const*, float const*, float*, int)"), record_function(SYMBOL):
                    loss = loss + 1
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
        if "threads" in wanted:
            second.join()
    profiler.export_chrome_trace(str(folder / "trace.json"))
    tables = {
        "plain": averages(profiler),
        "shapes": averages(profiler, group_by_input_shape=True),
        "stacks": averages(profiler, group_by_stack_n=STACK_FRAMES),
    }
    (folder / "averages.json").write_text(json.dumps(tables))


def main(folder: Path, captures: list[str]) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for wanted in captures:
        capture(folder / wanted, wanted.split("+"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
