"""What is run under the observer: functions that are called once to warm up and once recorded, and return tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Workload = Callable[[], list[torch.Tensor]]


def mlp() -> Workload:
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs, labels = torch.randn(8, 16), torch.randint(0, 4, (8,))

    def run() -> list[torch.Tensor]:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return [loss, *model.parameters()]

    return run


def transformer() -> Workload:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    optimizer = torch.optim.Adam(model.parameters())
    inputs = torch.randn(2, 8, 32)

    def run() -> list[torch.Tensor]:
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return [loss, *model.parameters()]

    return run


class _Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 0):
            return self.inner(x).relu()
        return self.inner(-x)


def torchscript() -> Workload:
    model = torch.jit.script(_Gate())
    inputs = torch.randn(4, 8)

    def run() -> list[torch.Tensor]:
        out = model(inputs)
        out.sum().backward()
        return [out]

    return run


def conv_and_lists() -> Workload:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    inputs = torch.randn(2, 3, 8, 8)

    def run() -> list[torch.Tensor]:
        out = model(inputs)
        both = torch.cat([out, out.flip(0)], 1)
        picked = both[torch.tensor([1, 0]), :, None]
        half = nn.functional.interpolate(picked.squeeze(2), scale_factor=2.0, mode="bilinear").to(torch.float64)
        added = torch._foreach_add([half, both.double()], 1.5)
        full = torch.full((2, 2), 1 + 2j) * torch.tensor(0.25)
        spectrum = torch.einsum("abcd,abcd->ab", both, both).sum(dim=(0, 1), keepdim=True)
        return [*added, full, spectrum, torch.zeros(()), torch.empty(0)]

    return run


def odd_tensors() -> Workload:
    """Of which some must not be asked for their sizes."""
    dense = torch.randn(3, 3)

    def run() -> list[torch.Tensor]:
        sparse = dense.to_sparse() + dense.to_sparse()
        quantized = torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8).dequantize()
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]) * 2
        jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged) + 1
        meta = torch.empty(3, 3, device="meta") + 1
        batched = torch.vmap(lambda row: row * 2)(dense)
        deep = dense.reshape((1,) * 28 + (3, 3)).sum()
        assert meta.shape == (3, 3)
        return [sparse.to_dense(), quantized, nested.unbind()[0], jagged.values(), batched, deep]

    return run


def shared_storages() -> Workload:
    """Two tensors that come to share the storage of a third: one island, though the first two never met."""

    def run() -> list[torch.Tensor]:
        first, second, third = torch.ones(4), torch.full((4,), 2.0), torch.full((4,), 3.0)
        sums = [first + 1, second + 1, third + 1]
        first.set_(third)  # type: ignore[call-overload]  # torch's stub has no tensors here
        second.set_(third)  # type: ignore[call-overload]  # as above
        return [*sums, first + 1, second + 1]

    return run


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * gradients[0]


def autograd() -> Workload:
    from torch.utils.checkpoint import checkpoint

    layer = nn.Linear(4, 4)
    inputs = torch.randn(2, 4, requires_grad=True)

    def run() -> list[torch.Tensor]:
        out = checkpoint(layer, _Square.apply(inputs), use_reentrant=False)
        again = checkpoint(layer, out, use_reentrant=True)
        again.sum().backward()
        return [again]

    return run


def ranges() -> Workload:
    def run() -> list[torch.Tensor]:
        with torch.profiler.record_function("outer"):
            for number in range(3):
                with torch.profiler.record_function(f"step {number}", "an argument"):
                    out = torch.ones(2) + number
        with torch._C._profiler._RecordFunctionFast("fast"):
            out = out * 2
        return [out]

    return run


def throwing() -> Workload:
    def run() -> list[torch.Tensor]:
        for _ in range(2):
            with contextlib.suppress(RuntimeError):
                torch.ones(2, 3) @ torch.ones(2, 3)
        return [torch.ones(1) + 1]

    return run


def jit_fork() -> Workload:
    @torch.jit.script
    def child(x: torch.Tensor) -> torch.Tensor:
        return x.relu() + 1

    @torch.jit.script
    def parent(x: torch.Tensor) -> torch.Tensor:
        future = torch.jit.fork(child, x)
        return torch.jit.wait(future) + child(x)

    def run() -> list[torch.Tensor]:
        return [parent(torch.ones(3))]

    return run


def loader() -> Workload:
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.arange(8.0).reshape(4, 2))

    def run() -> list[torch.Tensor]:
        return [batch.sum() for (batch,) in DataLoader(data, batch_size=2, num_workers=2)]

    return run


def compiled(backend: str) -> Workload:
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() + x.cos()).sum()

    fast = torch.compile(function, backend=backend)
    inputs = torch.randn(4, 4, requires_grad=True)

    def run() -> list[torch.Tensor]:
        loss = fast(inputs)
        loss.backward()
        return [loss]

    return run


def compiled_eager() -> Workload:
    return compiled("eager")


def compiled_aot() -> Workload:
    return compiled("aot_eager")


def gloo() -> Workload:
    """Of one rank; needs the process group."""
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(nn.Linear(8, 8))
    inputs = torch.randn(4, 8)

    def run() -> list[torch.Tensor]:
        model(inputs).sum().backward()
        total = torch.ones(2)
        torch.distributed.all_reduce(total)
        return [total, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]

    return run


WORKLOADS: dict[str, Callable[[], Workload]] = {
    make.__name__: make
    for make in (
        *(mlp, transformer, torchscript, conv_and_lists, odd_tensors, shared_storages, autograd, ranges, throwing),
        *(jit_fork, loader, compiled_eager, compiled_aot, gloo),
    )
}
