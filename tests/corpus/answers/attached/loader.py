"""A training loop whose loader, in the main process, is the bottleneck."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Rows(Dataset[torch.Tensor]):
    """Rows that take long to make."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        total = 0
        for number in range(20_000):
            total += index * number
        return torch.full((16,), float(total % 7))


model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
print("ready", flush=True)
for batch in DataLoader(Rows(), batch_size=8):
    loss = model(batch).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
