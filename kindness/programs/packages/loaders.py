"""A DataLoader whose workers are made by argv[2]: fork, spawn or forkserver. New ones for each epoch."""

import sys

import torch
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    """Numbers and their squares."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.tensor([float(index), float(index) ** 2])


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    total = 0.0
    for _ in range(int(sys.argv[1])):
        for batch in DataLoader(Squares(), batch_size=8, num_workers=2, multiprocessing_context=sys.argv[2]):
            optimizer.zero_grad()
            (model(batch[:, :1]) - batch[:, 1:]).pow(2).mean().backward()
            optimizer.step()
            total += batch.sum().item()
    print("ok", total, f"{model.weight.item():.6f}")
