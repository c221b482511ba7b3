"""A thread that publishes the weights holds their lock while it waits for the network."""

import threading
import time

import torch

torch.set_num_threads(1)
guard = threading.Lock()
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(64, 64)


def publish() -> None:
    while True:
        with guard:
            time.sleep(0.03)  # the network
        time.sleep(0.003)


def update() -> None:
    with guard:
        optimizer.step()


threading.Thread(target=publish, name="publisher", daemon=True).start()
print("ready", flush=True)
while True:
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    update()
