"""Training programs of two ranks as people write them, in which a rank comes late for a reason of practice.

Each returns a step of one rank. `gloo_jobs` runs them; steps in which the rank is late and others take turns. Work of
the late rank stands before a collective of the same step.
"""

from __future__ import annotations

import gc
import io
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import torch
    from torch import nn

DEVICE_SECONDS: Final = 0.012
READ_SECONDS: Final = 0.006
Step = Callable[[bool], None]  # whether this rank is late in it


def _classes(inputs: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.arange(len(inputs)) % 10


def average(model: nn.Module) -> None:
    """All gradients in one collective, as a program without DDP does it."""
    import torch
    import torch.distributed as dist

    grads = [one.grad for one in model.parameters() if one.grad is not None]
    flat = torch.cat([one.reshape(-1) for one in grads])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for grad, part in zip(grads, flat.split([one.numel() for one in grads]), strict=True):
        grad.copy_(part.view_as(grad))


def augments() -> Step:
    """DDP of a small convolution network, in buckets beside the backward pass; late: crops in Python."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(
        nn.Sequential(
            *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(64 * 14 * 14, 64), nn.ReLU(), nn.Linear(64, 10)),
        ),
        bucket_cap_mb=1,
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    images = torch.randn(16, 3, 36, 36)

    def crops(turn: int) -> torch.Tensor:
        return torch.stack([one[:, at % 5 : at % 5 + 32, turn % 5 : turn % 5 + 32] for at, one in enumerate(images)])

    def step(late: bool) -> None:
        for turn in range(12 if late else 1):
            batch = crops(turn)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch), _classes(batch)).backward()
        optimizer.step()

    return step


def accumulates() -> Step:
    """A transformer's layers over three micro batches, then one collective; late: two micro batches more."""
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters(), 0.001)
    tokens = torch.randn(8, 32, 64)

    def step(late: bool) -> None:
        optimizer.zero_grad()
        for _ in range(5 if late else 3):
            model(tokens).square().mean().backward()
        average(model)
        optimizer.step()

    return step


def experts() -> Step:
    """Tokens go to experts and back; late: the rank's expert is asked for more of them."""
    import torch
    import torch.distributed as dist
    from torch import nn

    gate, expert = nn.Linear(64, 64), nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 64))
    tokens = torch.randn(512, 64)

    def step(late: bool) -> None:
        with torch.no_grad():
            for _ in range(2):
                sent = gate(tokens).contiguous()
                got = torch.empty_like(sent)
                dist.all_to_all_single(got, sent)
                for _ in range(3 if late else 2):
                    done = expert(got)
                back = torch.empty_like(done)
                dist.all_to_all_single(back, done)
            back.softmax(1).sum()

    return step


def averages() -> Step:
    """Local steps, whose parameters are averaged in each second one; late: it looks at a batch of validation."""
    import torch
    import torch.distributed as dist
    from torch import nn

    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    inputs = torch.randn(128, 512)
    done = 0

    def step(late: bool) -> None:
        nonlocal done
        done += 1
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), _classes(inputs)).backward()
        optimizer.step()
        if late:
            with torch.no_grad():
                model(inputs).argmax(1).eq(_classes(inputs)).float().mean()
                model(inputs).softmax(1)
        if done % 2 == 0:
            with torch.no_grad():
                flat = nn.utils.parameters_to_vector(model.parameters())
                dist.all_reduce(flat)
                nn.utils.vector_to_parameters(flat / 2, model.parameters())

    return step


def recommends() -> Step:
    """Embeddings that are gathered, and a dense part; late: ids are made unique in Python."""
    import torch
    import torch.distributed as dist
    from torch import nn

    table, dense = (
        nn.EmbeddingBag(50_000, 32, sparse=True),
        nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)),
    )
    ids = torch.randint(0, 50_000, (256, 20))
    optimizer = torch.optim.SGD(dense.parameters(), 0.01)

    def step(late: bool) -> None:
        if late:
            seen: dict[int, int] = {}
            for row in ids.tolist():
                for one in row:
                    seen.setdefault(one, len(seen))
        optimizer.zero_grad()
        with torch.no_grad():
            looked = table(ids)
            parts = [torch.empty_like(looked) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, looked)
        for _ in range(4):
            dense(torch.cat(parts, 1)).square().mean().backward()
        average(dense)
        optimizer.step()

    return step


def reads() -> Step:
    """A multi-layer perceptron; late: it waits for a slow disk before each step."""
    import torch
    from torch import nn

    model = nn.Sequential(*[nn.Linear(384, 384) for _ in range(5)])
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    inputs = torch.randn(192, 384)

    def step(late: bool) -> None:
        if late:
            time.sleep(READ_SECONDS)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        average(model)
        optimizer.step()

    return step


def shards() -> Step:
    """Parameters in shards, gathered before use, gradients scattered, their norm reduced; late: gc.collect."""
    import torch
    import torch.distributed as dist

    half = torch.randn(96 * 96 * 2) / 50
    whole = torch.empty(2 * len(half), requires_grad=True)
    release, inputs = torch.optim.SGD([whole]), torch.randn(256, 96)
    kept = [{"step": at, "loss": [at]} for at in range(20_000)]

    def step(late: bool) -> None:
        if late:
            gc.collect(1)
            gc.collect()
            assert kept
        release.zero_grad()
        with torch.no_grad():
            parts = [torch.empty_like(half) for _ in range(2)]
            dist.all_gather(parts, half)
            whole.copy_(torch.cat(parts))
        hidden = inputs
        for weight in whole.view(4, 96, 96):
            hidden = (hidden @ weight).tanh()
        for _ in range(3):
            hidden.square().mean().backward(retain_graph=True)
        assert whole.grad is not None
        with torch.no_grad():
            dist.all_reduce(whole.grad)
            mine = whole.grad.view(2, -1)[dist.get_rank()]
            norm = mine.square().sum()
            dist.all_reduce(norm)
            half.sub_(0.01 * mine / (1 + norm.sqrt()))

    return step


def logs() -> Step:
    """A recurrent network; late: metrics of the step before are written as JSON."""
    import torch
    from torch import nn

    model = nn.LSTM(64, 128, 1, batch_first=True)
    optimizer = torch.optim.Adam(model.parameters(), 0.001)
    inputs = torch.randn(16, 24, 64)
    metrics = {f"layer{at}": [at * 0.5] * 40 for at in range(80)}

    def step(late: bool) -> None:
        if late:
            for _ in range(4):
                json.loads(json.dumps(metrics))
        optimizer.zero_grad()
        model(inputs)[0].square().mean().backward()
        average(model)
        optimizer.step()

    return step


def checkpoints() -> Step:
    """A perceptron; late: in each fourth step it serializes its state, which takes as long as some steps."""
    import torch
    from torch import nn

    model = nn.Sequential(*[nn.Linear(320, 320) for _ in range(6)])
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    inputs = torch.randn(160, 320)
    done = 0

    def step(late: bool) -> None:
        nonlocal done
        done += 1
        if late and done % 4 == 0:
            for _ in range(4):
                torch.save(model.state_dict(), io.BytesIO())
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        average(model)
        optimizer.step()

    return step


def devices() -> Step:
    """All ranks wait as for a device; late: a table is converted in Python before."""
    import torch
    import torch.distributed as dist

    grads, table = torch.randn(50_000), [str(at) for at in range(20_000)]

    def step(late: bool) -> None:
        if late:
            for _ in range(2):
                sum(int(one) for one in table)
        time.sleep(DEVICE_SECONDS)
        dist.all_reduce(grads)
        grads.mul_(0.5)

    return step


KINDS: Final = {
    one.__name__: one
    for one in (augments, accumulates, experts, averages, recommends, reads, shards, logs, checkpoints, devices)
}
