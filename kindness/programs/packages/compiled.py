"""torch.compile: compiled while it is recorded, recompiled for new shapes, forward and backward."""

import sys

import torch

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
fast = torch.compile(model)
total = 0.0
for turn in range(int(sys.argv[1]) * 10):
    optimizer.zero_grad()
    loss = fast(torch.randn(4 + turn % 3, 16)).pow(2).mean()
    loss.backward()
    optimizer.step()
    total += loss.item()
print("ok", f"{total:.4f}")
