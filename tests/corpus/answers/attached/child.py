"""Train an autoencoder and report memory use with each step, as `ps` sees it."""

import os
import subprocess

import torch
from torch import nn


def memory_used() -> float:
    answer = subprocess.run(["cat", f"/proc/{os.getpid()}/status"], capture_output=True, text=True, check=True)
    return next(int(line.split()[1]) / 1024 for line in answer.stdout.splitlines() if line.startswith("VmRSS"))


def main() -> None:
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(256, 64), nn.GELU(), nn.Linear(64, 256))
    optimizer = torch.optim.AdamW(model.parameters())
    history: list[tuple[float, float]] = []
    print("ready", flush=True)
    while True:
        inputs = torch.randn(256, 256)
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append((loss.item(), memory_used()))
        del history[:-1000]


if __name__ == "__main__":
    main()
