"""More of `late_programs`, written after the rules of `critical` for these stood (docs/ranks.md)."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

from tests.corpus.answers.late_programs import Step, average

if TYPE_CHECKING:
    import torch

TEXT: Final = "a rank that comes late keeps all of the others waiting for it " * 40


def hooks() -> Step:
    """DDP with a hook for each bucket; late: it looks for the largest gradients of the bucket before it is sent."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    layers = [part for _ in range(6) for part in (nn.Linear(256, 256), nn.GELU())]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.5)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    inputs, is_late = torch.randn(128, 256), False

    def sent(bucket: Any) -> torch.futures.Future[torch.Tensor]:
        grads = bucket.buffer()
        if is_late:
            grads.abs().sort()
        work = dist.all_reduce(grads, async_op=True)
        assert work is not None
        future: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda done: done.value()[0] / 2)
        return future

    model.register_comm_hook(None, lambda _, bucket: sent(bucket))  # it looks at annotations

    def step(late: bool) -> None:
        nonlocal is_late
        is_late = late
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def gathers() -> Step:
    """An evaluation whose results are gathered; late: its images are packed."""
    import torch
    import torch.distributed as dist
    from torch import nn

    model = nn.Sequential(nn.Conv2d(3, 24, 3), nn.ReLU(), nn.Conv2d(24, 48, 3, stride=2), nn.ReLU(), nn.Flatten())
    images = torch.randn(12, 3, 36, 36)
    packed = zlib.compress(images.numpy().tobytes() * 4)

    def step(late: bool) -> None:
        with torch.no_grad():
            if late:
                zlib.decompress(packed)
            results = model(images)[:, :2000].contiguous()
            parts = [torch.empty_like(results) for _ in range(2)]
            dist.all_gather(parts, results)
            torch.cat(parts).argmax(1).float().mean()

    return step


def tokenizes() -> Step:
    """Text becomes numbers, in Python, with a barrier after each batch; late: the rank has more of it."""
    import torch
    import torch.distributed as dist

    known: dict[str, int] = {}

    def step(late: bool) -> None:
        for _ in range(20 if late else 12):
            torch.tensor([known.setdefault(word, len(known)) for word in TEXT.split()])
        dist.barrier()

    return step


def sentences() -> Step:
    """A transformer, whose gradients and losses are averaged; late: its sentences are longer."""
    import torch
    import torch.distributed as dist
    from torch import nn

    layer = nn.TransformerEncoderLayer(96, 4, 192, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    optimizer = torch.optim.Adam(model.parameters(), 0.001)
    long, short = torch.randn(8, 48, 96), torch.randn(8, 32, 96)

    def step(late: bool) -> None:
        optimizer.zero_grad()
        loss = model(long if late else short).square().mean()
        loss.backward()
        average(model)
        optimizer.step()
        shown = loss.detach()
        dist.all_reduce(shown)
        shown.item()

    return step


def tables() -> Step:
    """A wide network with gradients of 4 MB; late: rows of a table are put in order, by a column each."""
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(1024, 900), nn.ReLU(), nn.Linear(900, 100))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    inputs, rows = torch.randn(96, 1024), torch.rand(3_000, 6).tolist()

    def step(late: bool) -> None:
        if late:
            for column in range(6):
                rows.sort(key=lambda row, at=column: row[at])
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        average(model)
        optimizer.step()

    return step


def columns() -> Step:
    """Layers cut over the ranks, whose parts are added up in each of four; late: its parts are wider."""
    import torch
    import torch.distributed as dist
    from torch import nn

    inputs = torch.randn(192, 128)

    def parts(width: int) -> list[nn.Sequential]:
        return [nn.Sequential(nn.Linear(128, width), nn.GELU(), nn.Linear(width, 128)) for _ in range(4)]

    usual, wide = parts(512), parts(896)

    def step(late: bool) -> None:
        with torch.no_grad():
            hidden = inputs
            for part in wide if late else usual:
                hidden = part(hidden)
                dist.all_reduce(hidden)
                hidden = nn.functional.layer_norm(hidden, (128,))

    return step


KINDS: Final = {one.__name__: one for one in (hooks, gathers, tokenizes, sentences, tables, columns)}
