"""Data parallel training by hand: gradients are averaged one parameter at a time.

Arguments: a file that the ranks meet in.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model: nn.Module) -> None:
    size = float(dist.get_world_size())
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
            parameter.grad /= size


def main() -> None:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=ranks, init_method=f"file://{sys.argv[1]}")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(16) for layer in (nn.Linear(48, 48), nn.ReLU())], nn.Linear(48, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    torch.manual_seed(rank)
    print("ready", flush=True)
    while True:
        inputs, target = torch.randn(64, 48), torch.randint(0, 10, (64,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), target).backward()
        average_gradients(model)
        optimizer.step()


if __name__ == "__main__":
    main()
