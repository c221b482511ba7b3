"""An ordinary training loop: 40 small layers, AdamW. Its losses have to be what they are without us."""

import math

import torch
from turns import turns

torch.set_num_threads(1)
torch.manual_seed(0)
layers = [layer for _ in range(40) for layer in (torch.nn.Linear(32, 32), torch.nn.LayerNorm(32), torch.nn.GELU())]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in turns():
    optimizer.zero_grad()
    loss = (model(torch.randn(4, 32)) - 1).pow(2).mean()
    loss.backward()
    optimizer.step()
    if not math.isfinite(loss.item()):
        raise SystemExit(f"the loss is {loss.item()}")
