"""A metric that is quadratic in what it has seen, and reads the loss on the host in every step."""

import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
seen: list[float] = []


def inversions(loss: torch.Tensor) -> int:
    seen.append(loss.item())
    del seen[:-300]
    found = 0
    for earlier in seen:
        for later in seen:
            found += earlier < later
    return found


print("ready", flush=True)
while True:
    loss = model(torch.randn(8, 16)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    inversions(loss)
