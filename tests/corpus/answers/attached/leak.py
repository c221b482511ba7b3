"""Outputs of a model are kept in a list."""

import time

import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Linear(256, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
history: list[torch.Tensor] = []


def remember(output: torch.Tensor) -> None:
    history.append(output * 0.5)


print("ready", flush=True)
while True:
    output = model(torch.randn(512, 256))
    optimizer.zero_grad()
    output.pow(2).mean().backward()
    optimizer.step()
    remember(output.detach())
    time.sleep(0.005)
