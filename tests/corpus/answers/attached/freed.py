"""Train a recommender; its author once saw memory grow, and frees it after each step."""

import gc

import torch
from torch import nn


class Vocabulary:
    def __init__(self, size: int) -> None:
        self.entries = {f"item-{i}": {"id": i, "tags": [i % 7, i % 11], "name": (f"n{i}",)} for i in range(size)}

    def sample(self, count: int) -> torch.Tensor:
        picks = torch.randint(0, len(self.entries), (count,)).tolist()
        return torch.tensor([self.entries[f"item-{i}"]["id"] for i in picks])


def free_memory() -> None:
    gc.collect()


def main() -> None:
    torch.set_num_threads(1)
    vocabulary = Vocabulary(50_000)
    table, head = nn.Embedding(50_000, 32, sparse=True), nn.Linear(32, 1)
    optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
    print("ready", flush=True)
    while True:
        loss = head(table(vocabulary.sample(4096))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        free_memory()


if __name__ == "__main__":
    main()
