"""torch.multiprocessing: tensors in shared memory, written to by processes that are spawned."""

import sys

import torch
import torch.multiprocessing as mp


def add(rank, shared, turns):
    """One process: its own row."""
    torch.set_num_threads(1)
    for _ in range(turns):
        shared[rank] += torch.ones(8) @ torch.ones(8)


if __name__ == "__main__":
    turns = int(sys.argv[1])
    shared = torch.zeros(3, 4).share_memory_()
    mp.spawn(add, args=(shared, turns * 100), nprocs=3)
    print("ok", shared.sum().item())
