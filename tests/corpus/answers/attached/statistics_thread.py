"""A thread computes statistics in Python beside the training, and has the interpreter's lock most of the time."""

import threading

import torch

torch.set_num_threads(1)


def statistics() -> None:
    counts: dict[int, int] = {}
    while True:
        for number in range(100_000):
            counts[number % 97] = counts.get(number % 97, 0) + number


threading.Thread(target=statistics, name="statistics", daemon=True).start()
model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(8)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(8, 16)
print("ready", flush=True)
while True:
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
