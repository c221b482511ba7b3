"""A small PyTorch training loop that knows nothing of profd. Runs until it is ended."""

from __future__ import annotations

import itertools
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import nn


def main() -> None:
    """Train a small network on random data for ever."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in itertools.count(1):
        inputs, labels = torch.randn(64, 256), torch.randint(0, 10, (64,))
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 3:
            print("training", flush=True)


if __name__ == "__main__":
    main()
