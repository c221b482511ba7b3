"""DistributedDataParallel over gloo: two ranks, whose weights have to be equal at the end."""

import os
import socket
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(rank, port, turns):
    """One rank."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for turn in range(turns * 20):
        torch.manual_seed(2 * turn + rank)
        optimizer.zero_grad()
        model(torch.randn(4, 8)).pow(2).mean().backward()
        optimizer.step()
    weights = [torch.zeros(8, 8) for _ in range(2)]
    dist.all_gather(weights, model.module.weight.detach())
    if not torch.equal(*weights):
        sys.exit("the ranks have different weights")
    if rank == 0:
        print("ok", f"{weights[0].sum().item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as free:
        chosen = free.getsockname()[1]
    mp.spawn(train, args=(chosen, int(sys.argv[1])), nprocs=2)
