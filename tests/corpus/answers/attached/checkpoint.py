"""Steps 200 to 210 of every 250 save a checkpoint and collect garbage."""

import gc
import io

import profclient
import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def save_checkpoint() -> None:
    for _ in range(12):
        torch.save(model.state_dict(), io.BytesIO())
    gc.collect()


print("ready", flush=True)
while True:
    number = profclient.step()
    loss = model(torch.randn(64, 256)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if 200 <= number % 250 <= 210:
        save_checkpoint()
