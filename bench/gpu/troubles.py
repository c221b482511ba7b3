"""Jobs on a GPU with a planted trouble, and two healthy ones: what `explain` is to find, and where it is to be silent.

Each maker gives a function that does one step and waits for nothing, as those of bench/gpu/loops.py.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import Any

from bench.gpu import device

Step = Callable[[], None]
CHECKPOINT_EVERY = 10
ITEMS = 20  # of the step that reads them one by one
TINY_LAUNCHES = 600
PAGEABLE_FLOATS = device.of(16 << 20, rehearsed=1 << 10)  # 64 MiB
LOAD_SECONDS = 0.02


class _Model:
    """A perceptron with AdamW. `work`: so many times its forward and backward pass is 1 TFLOP, about."""

    def __init__(self, width: int, depth: int, batch: int) -> None:
        import torch

        torch.manual_seed(0)
        if device.REHEARSAL:
            width, depth, batch = 16, 2, 4
        layers: list[Any] = []
        for _ in range(depth):
            layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
        self.module = torch.nn.Sequential(*layers).to(device.NAME)
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=1e-5)
        self.data = torch.randn(batch, width, device=device.NAME)

    def loss(self) -> Any:
        return self.module(self.data).square().mean()

    def train(self) -> Any:
        """A training step."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss()
        loss.backward()
        self.optimizer.step()
        return loss


def _small() -> _Model:
    return _Model(width=1024, depth=4, batch=1024)


def _large() -> _Model:
    """Its step takes the GPU some 20 to 40 ms: the host is far ahead."""
    return _Model(width=4096, depth=5, batch=4096)


def healthy() -> Step:
    """A large model, bound by the GPU; its loss is read now and then."""
    model, count = _large(), 0

    def step() -> None:
        nonlocal count
        loss = model.train()
        count += 1
        if count % 20 == 0:
            loss.item()

    return step


def healthy_graph() -> Step:
    """The large model's forward pass as a CUDA graph, four times a step; it waits in each fifth.

    CUPTI waits for all that is queued before it begins, and a queue of graphs can be longer than a window.
    """
    import profclient
    import torch

    model, count = _large(), 0
    model.module.eval()
    with torch.no_grad():
        for _ in range(3):
            model.loss()
        device.synchronize()
        if device.REHEARSAL:
            replay: Callable[[], Any] = model.loss
        else:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                model.loss()
            replay = graph.replay

    def step() -> None:
        nonlocal count
        with torch.no_grad():
            for _ in range(4):
                replay()
        count += 1
        if count % 5 == 0:
            device.synchronize()
        profclient.step()

    return step


def loads() -> Step:
    """Its data set sleeps and computes in the training process."""
    import torch

    model = _small()

    class Slow(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 1 << 30

        def __getitem__(self, _: int) -> Any:
            until = time.perf_counter() + LOAD_SECONDS / 2
            while time.perf_counter() < until:
                sum(range(1000))
            time.sleep(LOAD_SECONDS / 2)
            return torch.ones(8)

    batches = iter(torch.utils.data.DataLoader(Slow(), batch_size=1))

    def step() -> None:
        next(batches).to(device.NAME)
        model.train()

    return step


def reads() -> Step:
    """It reads numbers from the device one by one: the norm of each parameter, and whether the loss is a number."""
    import torch

    model = _Model(width=2048, depth=10, batch=1024)

    def step() -> None:
        model.optimizer.zero_grad(set_to_none=True)
        loss = model.loss()
        if torch.isnan(loss).item():
            raise FloatingPointError("the loss is no number")
        loss.backward()
        for parameter in list(model.module.parameters())[:ITEMS]:
            parameter.detach().norm().item()
        model.optimizer.step()

    return step


def launches() -> Step:
    """Hundreds of kernels of a microsecond."""
    import torch

    model, number = _small(), torch.zeros(64, device=device.NAME)

    def step() -> None:
        for _ in range(device.of(TINY_LAUNCHES, rehearsed=6)):
            number.add_(1)
        model.train()

    return step


def copies() -> Step:
    """64 MiB from pageable memory in each step."""
    import torch

    model, host = _small(), torch.ones(PAGEABLE_FLOATS)

    def step() -> None:
        host.to(device.NAME, copy=True)
        model.train()

    return step


def checkpoints() -> Step:
    """Each tenth step writes its parameters into memory of the host."""
    import torch

    model, count = _Model(width=2048, depth=6, batch=2048), 0

    def step() -> None:
        nonlocal count
        model.train()
        count += 1
        if count % CHECKPOINT_EVERY == 0:
            torch.save({name: value.cpu() for name, value in model.module.state_dict().items()}, io.BytesIO())

    return step


def empties() -> Step:
    """It gives the allocator's memory back in each step."""
    import torch

    model = _small()

    def step() -> None:
        model.train()
        torch.cuda.empty_cache()

    return step


TROUBLES: dict[str, Callable[[], Step]] = {
    maker.__name__: lambda maker=maker: device.launching(maker())
    for maker in (loads, reads, launches, copies, checkpoints, healthy, healthy_graph, empties)
}
