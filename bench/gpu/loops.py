"""Training loops on a GPU: each maker gives a function that does one step and waits for nothing.

In a rehearsal (bench/gpu/device.py) they are small, run on the CPU, and the CUDA graph is the forward pass itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bench.gpu import device

CAPTURE_SECONDS = 0.06  # of one graph: nearly all of a step

Step = Callable[[], None]


def launch_bound() -> Step:
    """A small transformer in bfloat16 at batch 1: some 1500 launches a step, the GPU waits for the host."""
    return _training(layers=6, width=256, batch=1, length=32)


def gpu_bound() -> Step:
    """A wide one at a large batch: the host is far ahead."""
    return _training(layers=4, width=2048, batch=32, length=512)


def graph() -> Step:
    """The small model's forward pass as a CUDA graph: one launch a step."""
    import torch

    model, data, _ = _model(layers=6, width=256, batch=1, length=32)
    model.eval()
    with torch.no_grad():
        for _ in range(3):  # warm-up, as torch.cuda.graph asks for
            model(data)
        device.synchronize()
        if device.REHEARSAL:
            return device.launching(lambda: model(data))
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            model(data)
    return lambda: recorded.replay()


def capturing() -> Step:
    """It captures the small model's forward pass into a new graph each time, slowly, and replays that."""
    import torch

    model, data, _ = _model(layers=6, width=256, batch=1, length=32)
    model.eval()

    def forward() -> None:
        with torch.no_grad():
            for layer in model.layers:
                layer(data)
                time.sleep(CAPTURE_SECONDS / len(model.layers))

    for _ in range(3):
        forward()
    device.synchronize()
    if device.REHEARSAL:
        return device.launching(forward)

    def step() -> None:
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            forward()
        recorded.replay()

    return step


LOOPS: dict[str, Callable[[], Step]] = {"launch_bound": launch_bound, "gpu_bound": gpu_bound, "graph": graph}


def _training(layers: int, width: int, batch: int, length: int) -> Step:
    import torch

    model, data, target = _model(layers, width, batch, length)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.NAME, dtype=torch.bfloat16):
            loss = torch.nn.functional.mse_loss(model(data), target)
        loss.backward()
        optimizer.step()

    return device.launching(step)


def _model(layers: int, width: int, batch: int, length: int) -> tuple[Any, Any, Any]:
    import torch

    torch.manual_seed(0)
    if device.REHEARSAL:
        layers, width, batch, length = 1, 16, 1, 8
    layer = torch.nn.TransformerEncoderLayer(width, nhead=8, batch_first=True, dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, layers).to(device.NAME)
    data = torch.randn(batch, length, width, device=device.NAME)
    return model, data, torch.randn_like(data)
